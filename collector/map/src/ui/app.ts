// The interface that each part of the page receives: the picture, the map, the view, the collector. Parts do not know
// each other.

import type { Http } from "../model/http";
import type { MapView } from "../graph/api";
import type { Change, Picture } from "../model/picture";
import type { ItemId } from "../model/ids";
import type { Views } from "./state";

/** `change` null: another picture. */
export type PictureListener = (picture: Picture, change: Change | null) => void;

export interface App {
  readonly http: Http;
  readonly map: MapView;
  readonly views: Views;
  /** The picture that is shown: the live one, or one of the past. */
  picture(): Picture;
  onPicture(listener: PictureListener): void;
  /** The time that is shown (ms since 1970). Ages are relative to it. */
  nowMs(): number;
  /** Announce a text to screen readers. */
  say(text: string): void;
  /** Select an object and move the view to it. */
  go(id: ItemId): void;
  moveTo(ids: readonly ItemId[]): void;
  /** Mark the path that is explained, instead of the search results. */
  drawPath(ids: readonly ItemId[] | null): void;
}
