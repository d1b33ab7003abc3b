// Builds the map into the collector's package, from where it is served under a policy that allows nothing but its
// own files: no inline script or style, no data outside, no host but the collector's.
import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    outDir: "../hyperscout_collector/serve/rest/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // inlined, an asset is a data: address, which the policy refuses for all but pictures
    modulePreload: { polyfill: false },
    license: { fileName: "LICENSES.md" }, // notices of what is bundled, beside it
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/v1": "http://127.0.0.1:50080" },
  },
  test: { include: ["test/**/*.test.ts"], environment: "node", testTimeout: 60_000 },
});
