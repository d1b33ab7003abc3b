// The interface that each part of the page receives: the picture, the map, the view, the collector. Parts do not know
// each other.

import type { Http } from "../model/http";
import type { MapView } from "../graph/api";
import type { Change, Picture } from "../model/picture";
import type { ItemId } from "../model/ids";
import type { Views } from "./state";

/** `change` null: another picture altogether. */
export type PictureListener = (picture: Picture, change: Change | null) => void;

export interface App {
  readonly http: Http;
  readonly map: MapView;
  readonly views: Views;
  /** What is on the screen: the live one, or one of the past. */
  picture(): Picture;
  onPicture(listener: PictureListener): void;
  /** The time that is looked at (ms since 1970): ages are told from it. */
  nowMs(): number;
  /** Announce a text to screen readers. */
  say(text: string): void;
  /** Select something and bring it into sight. */
  go(id: ItemId): void;
  moveTo(ids: readonly ItemId[]): void;
  /** The path that is explained, over whatever a search has marked. */
  drawPath(ids: readonly ItemId[] | null): void;
}
