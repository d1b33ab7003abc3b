// One text for each thing on the map, in deep links, selection and tests alike. Texts are looked up, never taken
// apart: a device may be called anything.

export type ItemId = string;
export type Kind = "hypernode" | "switch" | "node" | "link" | "port" | "endpoint";

export const hypernodeId = (name: string): ItemId => `hypernode:${name}`;
export const switchId = (id: string): ItemId => `switch:${id}`;
/** A switch that is missing, of which nothing is known but the domain that misses it. */
export const ghostId = (hypernode: string): ItemId => `switch:?${hypernode}`;
export const nodeId = (name: string): ItemId => `node:${name}`;
/** An endpoint that is not a node: storage, a gateway, a host without an agent. */
export const endpointId = (name: string): ItemId => `endpoint:${name}`;
export const portId = (device: string, port: string): ItemId => `port:${device}/${port}`;

/** A cable by what its ends are called (`Picture.cableId` makes them), whichever is told first. */
export const linkId = (one: string, other: string): ItemId =>
  one < other ? `link:${one}--${other}` : `link:${other}--${one}`;

export function kindOf(id: ItemId): Kind {
  return id.slice(0, id.indexOf(":")) as Kind;
}
