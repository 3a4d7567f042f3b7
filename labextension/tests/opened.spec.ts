import { beforeEach, describe, expect, it, vi } from 'vitest';

/** As after a reload of the page. */
async function reloaded(): Promise<typeof import('../src/panel/opened')> {
  vi.resetModules();
  return import('../src/panel/opened');
}

describe('open rows', () => {
  beforeEach(() => window.sessionStorage.clear());

  it('survive a reload, as do closed ones', async () => {
    const { rememberOpened } = await reloaded();
    rememberOpened('session a', true);
    rememberOpened('group b', false);
    const { wasOpened } = await reloaded();
    expect(['session a', 'group b', 'session c'].map(wasOpened)).toEqual([true, false, undefined]);
  });

  it('are no more than there is room for, the latest ones', async () => {
    const { MAX_ROWS, rememberOpened } = await reloaded();
    rememberOpened('again', true);
    for (let n = 0; n < MAX_ROWS; n++) {
      rememberOpened('again', true);
      rememberOpened(`row ${n}`, true);
    }
    const { wasOpened } = await reloaded();
    expect(['row 0', 'row 1', 'again'].map(wasOpened)).toEqual([undefined, true, true]);
    expect(JSON.parse(window.sessionStorage.getItem('jupyter-exec-ext:open-rows') ?? '')).toHaveLength(
      MAX_ROWS
    );
  });

  it('are forgotten where what is kept is not ours', async () => {
    window.sessionStorage.setItem('jupyter-exec-ext:open-rows', '{not JSON');
    expect((await reloaded()).wasOpened('row')).toBeUndefined();
  });
});
