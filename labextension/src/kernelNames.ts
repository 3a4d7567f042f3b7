/** Names of isolated kernels, in the panel and in JupyterLab's own lists. */

import type { KernelSpec } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

const LEVELS = ['landlock', 'sandbox'] as const;

/** The name of a kernelspec; the server adds the isolation to it, as in `python3+sandbox`. */
export function kernelWords(trans: TranslationBundle, name: string): string {
  const [, plain = name, level] = /^(.+)\+(landlock|sandbox)$/.exec(name) ?? [];
  switch (level) {
    case 'landlock':
      return trans.__('%1, with Landlock', plain);
    case 'sandbox':
      return trans.__('%1, sandboxed', plain);
    default:
      return plain;
  }
}

/**
 * Give isolated kernels a display name: JupyterLab finds no kernelspec `python3+sandbox`, and shows this instead.
 *
 * The server lists no such kernelspecs, since only tokens start them. So they are added in the page where JupyterLab
 * looks one up by its name, and not where it enumerates them, as the launcher does.
 */
export function nameIsolatedKernels(manager: KernelSpec.IManager, trans: TranslationBundle): void {
  const add = (): void => {
    const specs = manager.specs?.kernelspecs ?? {};
    for (const [name, spec] of Object.entries(specs)) {
      for (const level of LEVELS) {
        const isolated = `${name}+${level}`;
        if (spec !== undefined && !(isolated in specs)) {
          const display_name = kernelWords(trans, `${spec.display_name}+${level}`);
          Object.defineProperty(specs, isolated, { value: { ...spec, name: isolated, display_name } });
        }
      }
    }
  };
  manager.specsChanged.connect(add);
  add();
}
