// Computes the places of ports along a device's edge, in the order of their names. A cable that is cut, or reported again
// under the same names, does not move the other ports.
import type { ItemId } from "../model/ids";
import { compare, type Picture } from "../model/picture";
import { naturalKey } from "./layout";

/** By "device/port", from left to right. */
export type Ports = ReadonlyMap<string, Port>;

export interface Port {
  device: string;
  port: string;
  /** The displayed name: "17", or "mlx5_3/1" at a host. */
  label: string;
  /** Share of the device's width, 0 to 1. */
  offset: number;
  /** Whether the port is at the top edge. Ports of hosts are; ports of switches are at the bottom if they lead down. */
  atTop: boolean;
}

/** `isBelow`: whether the device at the other end stands below this one. */
export function portsOf(picture: Picture, id: ItemId, isBelow: (device: string) => boolean): Ports {
  const isSwitch = id.startsWith("switch:");
  const mine = new Set(picture.devicesOf(id));
  const found = new Map<string, Port>();
  for (const cable of picture.cablesOf(id)) {
    for (const [{ device, port }, peer] of [
      [cable.a, cable.b],
      [cable.b, cable.a],
    ] as const) {
      if (!mine.has(device)) continue;
      const label = isSwitch || cable.rail === "" ? port : `${cable.rail}/${port}`;
      found.set(`${device}/${port}`, { device, port, label, offset: 0, atTop: !isSwitch || !isBelow(peer.device) });
    }
  }
  const sorted = [...found].sort(
    ([, x], [, y]) => compare(keyOf(x.label), keyOf(y.label)) || compare(x.device, y.device),
  );
  sorted.forEach(([, port], i) => {
    port.offset = (i + 1) / (sorted.length + 1);
  });
  return new Map(sorted);
}

const MAX_KEYS = 10_000;
const keys = new Map<string, string>();

/** A cache, because thousands of devices have the same port names. */
function keyOf(label: string): string {
  let key = keys.get(label);
  if (key === undefined) {
    if (keys.size >= MAX_KEYS) keys.clear();
    key = naturalKey(label);
    keys.set(label, key);
  }
  return key;
}
