// Starts the page: the model, and the interface around the drawn map.
import { createMap } from "./graph/map";
import type { MapView } from "./graph/api";
import { Http } from "./model/http";
import { Live } from "./model/live";
import { startUi } from "./ui/index";

declare global {
  interface Window {
    /** For tests and for debugging in the browser's console. */
    hyperscoutMap?: MapView;
  }
}

const http = new Http();
const live = new Live(http);
const root = document.getElementById("app");
if (root !== null) window.hyperscoutMap = startUi({ root, http, live, makeMap: createMap }).map;
