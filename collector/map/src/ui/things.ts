// The names of objects on the map, and the objects of anomalies and of cables' ends.

import { hypernodeId, kindOf, portId, type ItemId } from "../model/ids";
import { linkState, STATES, type State } from "../model/conditions";
import type { Cable, Picture } from "../model/picture";
import type { Anomaly, Endpoint, LinkEnd } from "../model/types";
import { clock, parseTime } from "./times";

const KINDS: Readonly<Record<string, string>> = {
  hypernode: "Domain",
  switch: "Switch",
  node: "Node",
  link: "Cable",
  port: "Port",
  endpoint: "Endpoint",
  anomaly: "Anomaly",
};

export const kindWord = (id: ItemId): string => KINDS[kindOf(id)] ?? "Thing";
export const rest = (id: ItemId): string => id.slice(id.indexOf(":") + 1);

/** "leaf-03/p17". */
export function endText(picture: Picture, end: LinkEnd | Endpoint): string {
  const called = ("name" in end && end.name) || picture.deviceName(end.device);
  return end.port ? `${called}/${end.port}` : called;
}

export function label(picture: Picture, id: ItemId): string {
  const cable = picture.cables.get(id);
  if (cable) return `${endText(picture, cable.a)} – ${endText(picture, cable.b)}`;
  switch (kindOf(id) as string) {
    case "switch":
      return picture.switches.get(rest(id))?.name || rest(id);
    case "port": {
      const end = portOf(picture, id)?.end;
      return end ? endText(picture, end) : rest(id);
    }
    case "anomaly": {
      const anomaly = anomalyOf(picture, id);
      return anomaly ? between(picture, anomaly) : "gone";
    }
    default:
      return rest(id);
  }
}

export function between(picture: Picture, anomaly: Anomaly): string {
  const ends = anomaly.peer ? [anomaly.subject, anomaly.peer] : [anomaly.subject];
  return ends.map((end) => endText(picture, end)).join(" – ");
}

/** Whether the picture contains the object. */
export function exists(picture: Picture, id: ItemId): boolean {
  const name = rest(id);
  switch (kindOf(id) as string) {
    case "hypernode":
      return picture.hypernodes.has(name);
    case "switch":
      return picture.switches.has(name) || picture.anomaliesOf(id).length > 0;
    case "node":
      return picture.domainsOf(name).length > 0 || picture.nodesWithoutEvidence.includes(name);
    case "link":
      return picture.cables.has(id);
    case "port":
      return portOf(picture, id) !== null;
    case "anomaly":
      return anomalyOf(picture, id) !== null;
    default:
      return picture.cablesOf(id).length > 0 || picture.foreignEndpoints.includes(name) || picture.anomaliesOf(id).length > 0;
  }
}

export function portOf(picture: Picture, id: ItemId): { end: LinkEnd; cable: Cable } | null {
  for (const cable of picture.cables.values()) {
    for (const end of [cable.a, cable.b]) if (portId(end.device, end.port) === id) return { end, cable };
  }
  return null;
}

// --- anomalies -----------------------------------------------------------------------------------------------

/** A key from kind and place, which stays the same when the message changes. */
export function anomalyId(x: Anomaly): ItemId {
  const end = (e: Endpoint | null): string => (e ? `${e.device}/${e.port ?? ""}` : "");
  return `anomaly:${x.kind}:${end(x.subject)}--${end(x.peer)}`;
}

export function anomalyOf(picture: Picture, id: ItemId): Anomaly | null {
  return picture.anomalies.find((x) => anomalyId(x) === id) ?? null;
}

/** " · clears at 14:38:50", where that time is known. */
export function clears(x: Anomaly, nowMs: number): string {
  const at = parseTime(x.clearsAt);
  return at === null ? "" : ` · clears at ${clock(at, nowMs)}`;
}

/** The object of an anomaly on the map. */
export function placeOf(picture: Picture, x: Anomaly): ItemId {
  if (x.peer) {
    const cable = picture.cableId(x.subject, x.peer);
    if (picture.cables.has(cable)) return cable;
  }
  for (const end of x.peer ? [x.subject, x.peer] : [x.subject]) {
    const item = picture.itemOf(end.device, end.name);
    if (item.startsWith("endpoint:") ? picture.cablesOf(item).length : true) return item;
  }
  if (x.hypernode && picture.hypernodes.has(x.hypernode)) return hypernodeId(x.hypernode);
  return picture.itemOf(x.subject.device, x.subject.name);
}

export function stateOf(picture: Picture, id: ItemId): State {
  if (kindOf(id) === ("anomaly" as string)) {
    const anomaly = anomalyOf(picture, id);
    return anomaly ? linkState(anomaly) : "ok";
  }
  if (kindOf(id) === "link" && picture.cables.get(id)?.link === null) return "missing";
  return picture.stateOf(id);
}

/** Worst first, then in the order of the collector. */
export function worstFirst(anomalies: readonly Anomaly[]): Anomaly[] {
  const rank = (x: Anomaly): number => STATES.indexOf(linkState(x));
  return [...anomalies].sort((a, b) => rank(a) - rank(b));
}

/** The object that the map can select: for an anomaly the object that it is about. */
export function onMap(picture: Picture, id: ItemId): ItemId | null {
  if (kindOf(id) !== ("anomaly" as string)) return id;
  const anomaly = anomalyOf(picture, id);
  return anomaly ? placeOf(picture, anomaly) : null;
}

/** Names of the nodes that an object belongs to. Their findings describe it. */
export function nodesOf(picture: Picture, id: ItemId): string[] {
  const owner = (device: string): string[] => {
    const node = picture.adapterOf(device)?.node ?? device;
    return picture.domainsOf(node).length || picture.nodesWithoutEvidence.includes(node) ? [node] : [];
  };
  const cable = picture.cables.get(id) ?? portOf(picture, id)?.cable;
  if (cable) return [...new Set([...owner(cable.a.device), ...owner(cable.b.device)])];
  const anomaly = anomalyOf(picture, id);
  if (anomaly) {
    const ends = anomaly.peer ? [anomaly.subject, anomaly.peer] : [anomaly.subject];
    return [...new Set(ends.flatMap((end) => [...owner(end.device), ...owner(end.name)]))];
  }
  return kindOf(id) === "node" ? [rest(id)] : [];
}
