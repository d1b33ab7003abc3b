// Makes the id of each thing on the map, for links, the selection and tests. An id is looked up and never parsed,
// because the name of a device may contain any character.

export type ItemId = string;
export type Kind = "hypernode" | "switch" | "node" | "link" | "port" | "endpoint";

export const hypernodeId = (name: string): ItemId => `hypernode:${name}`;
export const switchId = (id: string): ItemId => `switch:${id}`;
/** A missing switch; only its domain is known. */
export const ghostId = (hypernode: string): ItemId => `switch:?${hypernode}`;
export const nodeId = (name: string): ItemId => `node:${name}`;
/** An endpoint that is not a node: storage, a gateway, a host without an agent. */
export const endpointId = (name: string): ItemId => `endpoint:${name}`;
export const portId = (device: string, port: string): ItemId => `port:${device}/${port}`;

/** A cable by the ids of its ends (`Picture.cableId` makes them), in any order. */
export const linkId = (one: string, other: string): ItemId =>
  one < other ? `link:${one}--${other}` : `link:${other}--${one}`;

/** The cluster of a node, by its name CLUSTER/NODE; "" = the collector's own. */
export const clusterOf = (node: string): string => node.slice(0, Math.max(0, node.indexOf("/")));

export function kindOf(id: ItemId): Kind {
  return id.slice(0, id.indexOf(":")) as Kind;
}
