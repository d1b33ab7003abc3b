// Draws the layer above the scene: the selection, the object under the pointer, search results, a path, a placement.
// It changes with each move of the mouse, and is small enough to be drawn again in each frame.
import type { ItemId } from "../model/ids";
import type { Highlight, MapTheme, Preview } from "./api";
import { HOST, type Rectangle } from "./layout";
import type { Looks } from "./marks";
import { fit, paintSpot, type View } from "./paint";
import { placeOf } from "./pick";
import { MISSING } from "./cables";
import type { Scene } from "./scene";

export interface Marks {
  selected: ItemId | null;
  hovered: ItemId | null;
  highlight: { kind: Highlight["kind"]; ids: ReadonlySet<ItemId> } | null;
  preview: Preview | null;
}

export function paintOverlay(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  marks: Marks,
  theme: MapTheme,
  looks: readonly Looks[],
  view: View,
): void {
  ctx.clearRect(0, 0, view.width, view.height);
  const { highlight, preview } = marks;
  if (highlight?.kind === "path" && highlight.ids.size > 0) {
    ctx.globalAlpha = 0.5;
    ctx.fillStyle = theme.background;
    ctx.fillRect(0, 0, view.width, view.height);
    ctx.globalAlpha = 1;
  }
  for (const id of highlight?.ids ?? []) {
    const isPath = highlight?.kind === "path";
    outline(ctx, scene, id, isPath ? theme.path : theme.selected, isPath ? 4 : 2, view);
  }
  if (highlight?.kind === "path") {
    ctx.textBaseline = "middle";
    for (const id of highlight.ids) {
      const spot = scene.layout.spotOf.get(id);
      if (spot !== undefined) paintSpot(ctx, scene, spot, theme, looks, view);
    }
  }
  if (preview !== null) paintPreview(ctx, scene, preview, theme, view);
  if (marks.hovered !== null) outline(ctx, scene, marks.hovered, theme.text, 1.5, view);
  if (marks.selected !== null) outline(ctx, scene, marks.selected, theme.selected, 3, view);
}

function outline(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  id: ItemId,
  colour: string,
  width: number,
  view: View,
): void {
  const place = placeOf(scene, id);
  if (place === null) return;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  const cable = scene.cables.indexOf.get(id);
  if (cable !== undefined) {
    const at = scene.cables.lineOf(cable);
    const line = scene.cables.lines.subarray(at, at + 4);
    ctx.setLineDash(scene.cables.state[cable] === MISSING ? [3, 5] : []);
    ctx.beginPath();
    ctx.moveTo(((line[0] as number) - view.x) * view.zoom, ((line[1] as number) - view.y) * view.zoom);
    ctx.lineTo(((line[2] as number) - view.x) * view.zoom, ((line[3] as number) - view.y) * view.zoom);
    ctx.stroke();
    ctx.setLineDash([]);
    return;
  }
  const { x, y, w, h } = onScreen(place, view);
  if (x > view.width || y > view.height || x + w < 0 || y + h < 0) return;
  const gap = width / 2 + 1;
  ctx.strokeRect(x - gap, y - gap, w + 2 * gap, h + 2 * gap);
}

function onScreen(place: Rectangle, view: View): Rectangle {
  return {
    x: (place.x - view.x) * view.zoom,
    y: (place.y - view.y) * view.zoom,
    w: place.w * view.zoom,
    h: place.h * view.zoom,
  };
}

function paintPreview(
  ctx: CanvasRenderingContext2D,
  scene: Scene,
  preview: Preview,
  theme: MapTheme,
  view: View,
): void {
  const size = HOST * view.zoom;
  const font = Math.min(13, Math.max(8, size * 0.3));
  ctx.font = `bold ${font}px ${theme.font}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  for (const [node, text] of preview.nodes) {
    const spot = scene.layout.spots[scene.layout.spotOf.get(`node:${node}`) ?? -1];
    if (spot === undefined) continue;
    const { x, y, w, h } = onScreen(spot, view);
    if (x > view.width || y > view.height || x + w < 0 || y + h < 0) continue;
    ctx.fillStyle = theme.placed;
    ctx.fillRect(x - 1, y - 1, w + 2, h + 2);
    if (size < 14) continue;
    ctx.fillStyle = theme.background;
    ctx.fillText(fit(text, w, font), x + w / 2, y + h / 2);
  }
  ctx.textAlign = "left";
}
