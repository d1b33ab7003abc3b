// The objects of `-o json`, of REST and of the stream, unchanged. Names and units are those of
// proto/hyperscout/v1/topology.proto.

export interface Condition {
  type: string;
  /** "True", "False" or "Unknown". */
  status: string;
  reason: string;
  message: string;
  /** RFC 3339; absent when inferred offline. */
  lastTransitionTime?: string;
  /** All nodes that are not ready or stale; absent if there are none. */
  nodes?: string[];
  /** Ids of all switches that are stale; absent if there are none. */
  switches?: string[];
  /** For each of `nodes`, then of `switches`: why it is not ready, or when it was seen; "" = unknown. */
  details?: string[];
}

/** In the unit that the field's name says; `p99` is the worse end; `samples` 0 = only the median is known. */
export interface Measured {
  median: number;
  p99: number;
  samples: number;
  measuredAt?: string;
}

export interface HyperNode {
  name: string;
  /** 1 = closest to the hosts. */
  tier: number;
  tierName: string;
  /** null at a root. */
  parent: string | null;
  children: string[];
  /** All nodes below, sorted. */
  nodes: string[];
  /** Ids of the switches of its own tier. */
  switches: string[];
  conditions: Condition[];
  /** "wires", a kind of accelerator fabric, "latency" or "labels". */
  source: string;
  confidence: number;
  latencyUs?: Measured;
  bandwidthGbps?: Measured;
}

export interface Switch {
  id: string;
  name: string;
  /** 1 = leaf; 0 = unknown. */
  level: number;
}

export interface Adapter {
  id: string;
  node: string;
  /** Its name on its host, "mlx5_0"; "" if unknown. */
  name: string;
}

export interface LinkEnd {
  device: string;
  port: string;
}

export interface Link {
  a: LinkEnd;
  b: LinkEnd;
  fabric: string;
  sources: string[];
  /** The reason why the link is uncertain. */
  note?: string;
}

export interface Endpoint {
  /** GUID, chassis id or node name. */
  device: string;
  name: string;
  port: string | null;
}

export interface Anomaly {
  /** MissingLink, MissingSwitch, Miswired, SlowLink, ErroringLink, SourcesDisagree, UnknownHost, Overlap, BlueprintDrift,
   *  EvidenceSetAside, NotATree. */
  kind: string;
  subject: Endpoint;
  peer: Endpoint | null;
  /** null or 0 = of no domain. */
  tier: number | null;
  sources: string[];
  confidence: number;
  message: string;
  hypernode?: string | null;
  /** RFC 3339. */
  since?: string;
  /** All affected nodes, if the ends do not name them. */
  nodes?: string[];
  /** The measured values in the message; their names end with the unit or with what is counted. */
  figures?: { name: string; value: number }[];
  /** How often it went and came back lately, and when it last did either (RFC 3339). */
  flaps?: number;
  changedAt?: string;
  /** RFC 3339. Until when it is listed if nothing happens. With `flaps` it is over since `changedAt`. */
  clearsAt?: string;
}

export interface Tier {
  tier: number;
  tierName: string;
  latencyUs?: Measured;
  bandwidthGbps?: Measured;
}

export interface Topology {
  generation: number;
  hypernodes: HyperNode[];
  switches: Switch[];
  adapters: Adapter[];
  links: Link[];
  anomalies: Anomaly[];
  nodesWithoutEvidence: string[];
  foreignEndpoints: string[];
  tiers: Tier[];
}

/** Changes since the previous generation: new and changed objects, the names of removed ones, and the short lists in
 * full. */
export interface TopologyDelta {
  generation: number;
  hypernodes?: HyperNode[];
  removedHypernodes?: string[];
  anomalies?: Anomaly[];
  switches?: Switch[];
  removedSwitches?: string[];
  addedLinks?: Link[];
  removedLinks?: Link[];
  addedAdapters?: Adapter[];
  removedAdapters?: Adapter[];
  nodesWithoutEvidence?: string[];
  foreignEndpoints?: string[];
  tiers?: Tier[];
}

/** Problem document (RFC 9457), which the collector sends with each refusal. */
export interface ProblemDocument {
  type?: string;
  title: string;
  status: number;
  detail?: string;
  instance?: string;
  field?: string;
  leader?: string;
}
