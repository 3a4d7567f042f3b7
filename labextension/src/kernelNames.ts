/** Names of isolated kernels in JupyterLab's own lists. */

import type { KernelSpec } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';

import { kernelWords } from './panel/words';

const LEVELS = ['landlock', 'sandbox'] as const;

/**
 * Give isolated kernels a display name: JupyterLab finds no kernelspec `python3+sandbox`, and shows this instead.
 *
 * The server lists no such kernelspecs, since nothing but a token can start them. So they are added in the page where
 * JupyterLab looks one up by its name, and not where it enumerates them, as the launcher does.
 */
export function nameIsolatedKernels(manager: KernelSpec.IManager, trans: TranslationBundle): void {
  const add = (): void => {
    const specs = manager.specs?.kernelspecs ?? {};
    for (const [name, spec] of Object.entries(specs)) {
      for (const level of LEVELS) {
        const isolated = `${name}+${level}`;
        if (spec !== undefined && !(isolated in specs)) {
          Object.defineProperty(specs, isolated, {
            value: {
              ...spec,
              name: isolated,
              display_name: kernelWords(trans, `${spec.display_name}+${level}`)
            }
          });
        }
      }
    }
  };
  manager.specsChanged.connect(add);
  add();
}
