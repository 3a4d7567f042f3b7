import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { afterEach, describe, expect, it } from 'vitest';

import { ExecModel } from '../src/model/model';
import { SearchResults } from '../src/panel/search';
import { type IServices, ServicesContext } from '../src/panel/services';
import type { Answer } from './helpers';
import { execution, FakeServer, json, Late, until } from './helpers';

/** Shows results of a text that a test changes. */
class Page {
  readonly node: HTMLElement;

  constructor(readonly server: FakeServer) {
    this.model = new ExecModel(server.client, new Promise(() => undefined));
    const services = { model: this.model, trans: nullTranslator.load('') } as unknown as IServices;
    const Searched = (): React.ReactElement => {
      const [text, setText] = React.useState('');
      this._setText = setText;
      return <SearchResults text={text} />;
    };
    this._widget = ReactWidget.create(
      <ServicesContext.Provider value={services}>
        <Searched />
      </ServicesContext.Provider>
    );
    Widget.attach(this._widget, document.body);
    this.node = this._widget.node;
  }

  async type(text: string): Promise<void> {
    await until(() => this._setText !== null);
    this._setText?.(text);
  }

  get asked(): string[] {
    return this.server.requests.map(each => new URL(each.url).searchParams.get('query') ?? '');
  }

  get text(): string {
    return this.node.textContent ?? '';
  }

  dispose(): void {
    this._widget.dispose();
    this.model.dispose();
  }

  readonly model: ExecModel;
  private readonly _widget: Widget;
  private _setText: ((text: string) => void) | null = null;
}

let page: Page | null = null;

afterEach(() => {
  page?.dispose();
  page = null;
});

function found(id: string, session = 's1', name = 'analysis'): object {
  return {
    execution: execution(id, { session_id: session }),
    owner: 'o',
    session_name: name,
    token_name: ''
  };
}

function open(answers: { [query: string]: Answer | Answer[] }): Page {
  const entries = Object.entries(answers).map(([query, answer]) => [`GET executions?query=${query}`, answer]);
  return (page = new Page(new FakeServer(Object.fromEntries(entries) as { [path: string]: Answer })));
}

describe('SearchResults', () => {
  it('asks the server once somebody has typed three characters, and stopped', async () => {
    const { node } = open({ 'pand&limit=50': json({ found: [found('a'), found('b')], complete: true }) });
    for (const text of ['', 'p', 'pa', 'pan', ' pand ']) {
      await page?.type(text);
    }
    await until(() => node.querySelectorAll('.jex-Execution').length === 2);
    expect(page?.asked).toEqual(['pand']);
    expect(node.querySelectorAll('.jex-Found')).toHaveLength(1);
    expect(page?.text).toContain('analysis');
  });

  it('shows the answer to what was typed last, and gives up the request before', async () => {
    const late = new Late();
    open({
      'first&limit=50': late.answer,
      'second&limit=50': json({ found: [found('b', 's2', 'second session')], complete: true })
    });
    await page?.type('first');
    await until(() => late.asked);
    await page?.type('second');
    await until(() => page?.text.includes('second session') ?? false);
    expect(page?.server.requests[0]?.signal.aborted).toBe(true);
    late.send(json({ found: [found('a', 's1', 'first session')], complete: true }));
    await new Promise(resolve => setTimeout(resolve));
    expect(page?.text).not.toContain('first session');
  });

  it('says that there are none, that some are still indexed, and why it failed', async () => {
    open({
      'none&limit=50': json({ found: [], complete: false }),
      'fail&limit=50': json({ message: 'cannot search: no FTS5', code: 'search_not_available' }, 501)
    });
    await page?.type('none');
    await until(() => page?.text.includes('No matches') ?? false);
    expect(page?.text).toContain('still being indexed');
    await page?.type('fail');
    await until(() => page?.text.includes('no FTS5') ?? false);
    expect(page?.text).not.toContain('No matches');
  });

  it('shows earlier ones on request', async () => {
    const first = Array.from({ length: 50 }, (_, n) => found(`e${n}`, `s${n % 2}`));
    const { node } = open({
      'many&limit=50': json({ found: first, complete: true }),
      'many&limit=50&before=e49': json({ found: [found('last')], complete: true })
    });
    await page?.type('many');
    await until(() => node.querySelector('.jex-Earlier') !== null);
    expect(page?.text).toContain('50+');
    node.querySelector<HTMLElement>('.jex-Earlier')?.click();
    await until(() => node.querySelectorAll('.jex-Execution').length === 51);
    expect(node.querySelector('.jex-Earlier')).toBeNull();
  });
});
