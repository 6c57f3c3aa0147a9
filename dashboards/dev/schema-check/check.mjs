// Holds every dashboard against Grafana's own TypeScript types: `npm install && npm run check`.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const folder = process.argv[2] ?? join(here, "..", "..", "grafana");
const checked = join(here, ".checked");

// Fields that the generator's library writes and the types do not have. Grafana ignores them.
const UNTYPED = {
  variable: ["auto", "auto_min", "auto_count", "definition"],
  annotation: ["expr", "titleFormat", "useValueForTime"],
};

// JSON has the values of enumerations, not their members.
const HEAD = `import type { Dashboard } from "@grafana/schema";
type Plain<T> = T extends string ? \`\${T}\` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
`;

function without(object, names) {
  return Object.fromEntries(Object.entries(object).filter(([name]) => !names.includes(name)));
}

function typed(dashboard) {
  return {
    ...dashboard,
    templating: { list: dashboard.templating.list.map((one) => without(one, UNTYPED.variable)) },
    annotations: { list: dashboard.annotations.list.map((one) => without(one, UNTYPED.annotation)) },
  };
}

rmSync(checked, { recursive: true, force: true });
mkdirSync(checked);
const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
for (const name of names) {
  const text = JSON.stringify(typed(JSON.parse(readFileSync(join(folder, name), "utf-8"))), null, 2);
  const source = `${HEAD}export const board: Partial<Plain<Dashboard>> = ${text};\n`;
  writeFileSync(join(checked, name.replace(".json", ".ts")), source);
}
const files = names.map((name) => join(checked, name.replace(".json", ".ts")));
const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"];
const tsc = spawnSync(join(here, "node_modules", ".bin", "tsc"), [...options, ...files], { stdio: "inherit" });
console.log(tsc.status === 0 ? `${names.length} dashboards fit the types` : "they do not fit");
process.exit(tsc.status ?? 1);
