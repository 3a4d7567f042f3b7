import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import type { INetworkRequest, ISession, ISessionNetwork } from '../src/api/types';
import type { ICommandContext } from '../src/commands/context';
import { addNetworkCommand } from '../src/commands/network';
import { Network } from '../src/panel/network';
import { type IServices, ServicesContext } from '../src/panel/services';
import { requestName, requestWords } from '../src/words';
import { session, until } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');
const REFUSED: INetworkRequest = {
  at: '2026-01-01T00:00:00Z',
  host: 'b.example',
  port: 443,
  method: 'CONNECT',
  path: '',
  verdict: 'refused',
  rule: '',
  reason: "policy 'net' does not allow host b.example",
  bytes_sent: 0,
  bytes_received: 0
};
const NETWORK: ISessionNetwork = {
  network: 'rules',
  rules: ['a.example'],
  added_rules: [],
  requests: [REFUSED]
};

class Screen {
  constructor(private readonly _callback: (entries: { isIntersecting: boolean }[]) => void) {}

  observe(): void {
    this._callback([{ isIntersecting: true }]);
  }

  disconnect(): void {
    // Nothing is observed.
  }
}

interface IShown {
  node: HTMLElement;
  network: ReturnType<typeof vi.fn>;
  allowNetwork: ReturnType<typeof vi.fn>;
}

function shown(of: ISession, answer: object): IShown {
  vi.stubGlobal('IntersectionObserver', Screen);
  const commands = new CommandRegistry();
  const network = vi.fn(() => Promise.resolve(answer));
  const allowNetwork = vi.fn(() => Promise.resolve(answer));
  const model = { client: { network, allowNetwork } };
  const attempt = <T,>(work: Promise<T>): Promise<T> => work;
  addNetworkCommand({ commands, model, trans, attempt } as unknown as ICommandContext);
  const widget = ReactWidget.create(
    <ServicesContext.Provider value={{ trans, commands, model } as unknown as IServices}>
      <Network session={of} />
    </ServicesContext.Provider>
  );
  Widget.attach(widget, document.body);
  return { node: widget.node, network, allowNetwork };
}

describe('Network', () => {
  afterEach(() => vi.unstubAllGlobals());

  it('allows a refused host for the session, and keeps the focus near', async () => {
    const { node, allowNetwork } = shown(session('s', { wanted_rules: ['b.example:443'] }), NETWORK);
    await until(() => node.querySelector('.jex-Network-toggle') !== null);
    node.querySelector<HTMLElement>('.jex-Link')?.click();
    await until(() => document.activeElement?.className === 'jex-Network-toggle');
    expect(allowNetwork).toHaveBeenCalledWith('s', 'b.example:443');
  });

  it('lists requests with what came of them', async () => {
    const { node } = shown(session('s'), NETWORK);
    await until(() => node.querySelector('.jex-Network-toggle') !== null);
    node.querySelector<HTMLElement>('.jex-Network-toggle')?.click();
    await until(() => node.querySelector('ol') !== null);
    expect(node.querySelector('li')?.textContent).toContain('b.example:443');
    expect(node.querySelector('li')?.textContent).toContain('refused: policy');
    expect(node.textContent).toContain('Rules: a.example');
  });

  it('shows nothing for a session without rules, and does not ask again', async () => {
    const { node, network } = shown(session('s'), { ...NETWORK, network: 'none' });
    await until(() => network.mock.calls.length > 0 && node.querySelector('.jex-Network') === null);
    expect(node.textContent).toBe('');
  });

  it('asks nothing about a session without a sandbox', () => {
    expect(shown(session('s', { isolation: 'none' }), NETWORK).network).not.toHaveBeenCalled();
  });
});

describe('requestWords', () => {
  it('say by which rule, how much, or why not', () => {
    const sent = { ...REFUSED, verdict: 'allowed', rule: 'b.example', bytes_received: 1500 } as const;
    expect(requestWords(trans, sent)).toBe('allowed by b.example; 0 B sent, 1.5 kB received');
    expect(requestWords(trans, { ...REFUSED, verdict: 'failed', reason: 'timeout' })).toBe('failed: timeout');
  });

  it('name addresses and paths as in URLs', () => {
    const read = { ...REFUSED, host: 'fd00::1', port: 80, method: 'GET', path: '/a' };
    expect(requestName(trans, read)).toBe('GET [fd00::1]:80/a');
    expect(requestName(trans, { ...REFUSED, host: '' })).toBe('unreadable request');
  });
});
