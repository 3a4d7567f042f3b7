import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { describe, expect, it, vi } from 'vitest';

import type { ICommandContext } from '../src/commands/context';
import { addPortCommands } from '../src/commands/ports';
import { OpenPorts } from '../src/panel/ports';
import { type IServices, ServicesContext } from '../src/panel/services';
import { session, until } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');

async function shown(answer: object): Promise<{ node: HTMLElement; openPort: ReturnType<typeof vi.fn> }> {
  const commands = new CommandRegistry();
  const openPort = vi.fn(() => Promise.resolve(answer));
  const model = { client: { openPort, closePort: vi.fn() } };
  const attempt = <T,>(work: Promise<T>): Promise<T> => work;
  addPortCommands({ commands, model, trans, attempt } as unknown as ICommandContext);
  const services = { trans, commands } as unknown as IServices;
  const widget = ReactWidget.create(
    <ServicesContext.Provider value={services}>
      <OpenPorts session={session('s', { open_ports: [8501] })} />
    </ServicesContext.Provider>
  );
  Widget.attach(widget, document.body);
  await until(() => widget.node.querySelector('button') !== null);
  return { node: widget.node, openPort };
}

describe('OpenPorts', () => {
  it('opens the link in a tab that has no handle of this one', async () => {
    const open = vi.spyOn(window, 'open').mockReturnValue(null);
    const { node, openPort } = await shown({ browser_url: 'http://p.localhost/t', browser_reason: null });
    node.querySelector('button')?.click();
    await until(() => open.mock.calls.length > 0);
    expect(openPort).toHaveBeenCalledWith('s', 8501);
    expect(open).toHaveBeenCalledWith('http://p.localhost/t', '_blank', 'noopener,noreferrer');
    open.mockRestore();
  });

  it('says why there is no link, and opens nothing that is no web address', async () => {
    const open = vi.spyOn(window, 'open').mockReturnValue(null);
    const { node } = await shown({ browser_url: 'javascript:alert(1)', browser_reason: 'no second name' });
    node.querySelector('button')?.click();
    await until(() => node.textContent?.includes('No link for this browser: no second name') === true);
    expect(open).not.toHaveBeenCalled();
    expect(node.querySelectorAll('button')).toHaveLength(1);
    open.mockRestore();
  });
});
