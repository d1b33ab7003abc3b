// Wheel, drag, pinch, double click and animated moves, by d3-zoom; here they are put into the map's camera: world
// coordinates of the view's centre, and pixels for each unit.
import { select, type Selection } from "d3-selection";
import { zoom, zoomIdentity, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import "d3-transition";
import type { Camera } from "./api";
import type { Rectangle } from "./layout";

const NEAREST = 80;
const ANIMATION_MS = 350;

export interface Gestures {
  camera(): Camera;
  move(camera: Camera, animate: boolean): void;
  zoomBy(factor: number): void;
  panBy(dx: number, dy: number): void;
  /** The limits of the camera: it shows at most the whole map, and always a part of it. */
  setBounds(bounds: Rectangle, width: number, height: number): void;
  destroy(): void;
}

export function gestures(element: HTMLElement, moved: (camera: Camera, byHand: boolean) => void): Gestures {
  let width = 1;
  let height = 1;
  let transform: ZoomTransform = zoomIdentity;
  const behaviour: ZoomBehavior<HTMLElement, unknown> = zoom<HTMLElement, unknown>();
  const selection: Selection<HTMLElement, unknown, null, undefined> = select(element);
  const cameraOf = (t: ZoomTransform): Camera => ({
    x: (width / 2 - t.x) / t.k,
    y: (height / 2 - t.y) / t.k,
    zoom: t.k,
  });
  const transformOf = ({ x, y, zoom: k }: Camera): ZoomTransform =>
    zoomIdentity.translate(width / 2 - x * k, height / 2 - y * k).scale(k);
  behaviour
    .extent(() => [
      [0, 0],
      [width, height],
    ])
    .on("zoom", (event: { transform: ZoomTransform; sourceEvent: Event | null }) => {
      transform = event.transform;
      moved(cameraOf(transform), event.sourceEvent !== null);
    });
  selection.call(behaviour);
  return {
    camera: () => cameraOf(transform),
    move(camera, animate) {
      if (animate && !matchMedia("(prefers-reduced-motion: reduce)").matches)
        selection.transition().duration(ANIMATION_MS).call(behaviour.transform, transformOf(camera));
      else selection.call(behaviour.transform, transformOf(camera));
    },
    zoomBy: (factor) => selection.call(behaviour.scaleBy, factor),
    panBy: (dx, dy) => selection.call(behaviour.translateBy, -dx / transform.k, -dy / transform.k),
    setBounds(bounds, newWidth, newHeight) {
      const camera = cameraOf(transform);
      const changed = newWidth !== width || newHeight !== height;
      [width, height] = [newWidth, newHeight];
      const whole = fitting(bounds, width, height).zoom;
      const [marginX, marginY] = [bounds.w / 2 + 40, bounds.h / 2 + 40];
      behaviour.scaleExtent([Math.min(whole, 1) * 0.5, Math.max(NEAREST, whole)]).translateExtent([
        [bounds.x - marginX, bounds.y - marginY],
        [bounds.x + bounds.w + marginX, bounds.y + bounds.h + marginY],
      ]);
      if (changed) selection.call(behaviour.transform, transformOf(camera));
    },
    destroy: () => selection.on(".zoom", null),
  };
}

/** The camera that shows a rectangle whole, with a margin around it. */
export function fitting(rectangle: Rectangle, width: number, height: number, nearest = NEAREST): Camera {
  const room = (size: number): number => Math.max(1, size - 32);
  const zoom = Math.min(nearest, room(width) / Math.max(1, rectangle.w), room(height) / Math.max(1, rectangle.h));
  return { x: rectangle.x + rectangle.w / 2, y: rectangle.y + rectangle.h / 2, zoom };
}
