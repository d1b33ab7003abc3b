// The kinds of accelerator fabrics, as hyperscout_formats.facts.accelerators has them (a test compares the two).

export interface AcceleratorKind {
  /** What its domains are called. */
  domain: string;
  /** The resource of Kubernetes that its device plugin offers. */
  resource: string;
}

/** By the source of a domain. */
export const ACCELERATORS: Readonly<Record<string, AcceleratorKind>> = {
  nvlink: { domain: "NVLink domain", resource: "nvidia.com/gpu" },
  xgmi: { domain: "xGMI hive", resource: "amd.com/gpu" },
  ascend: { domain: "Ascend super pod", resource: "huawei.com/Ascend910" },
};
