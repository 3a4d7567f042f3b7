import { nullTranslator } from '@jupyterlab/translation';
import { ReactWidget } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { describe, expect, it } from 'vitest';

import { wantedAnswer } from '../src/panel/pendingFocus';
import { InputForm } from '../src/panel/input';
import { type IServices, ServicesContext } from '../src/panel/services';
import { until } from './helpers';

async function field(password: boolean): Promise<HTMLInputElement> {
  const services = { trans: nullTranslator.load('jupyter_exec_ext') } as IServices;
  const widget = ReactWidget.create(
    <ServicesContext.Provider value={services}>
      <InputForm executionId="e" sessionId="s" prompt="?" password={password} />
    </ServicesContext.Provider>
  );
  Widget.attach(widget, document.body);
  await until(() => widget.node.querySelector('input') !== null);
  return widget.node.querySelector('input') as HTMLInputElement;
}

describe('InputForm', () => {
  it('gets the focus when its session is wanted, once', async () => {
    const input = await field(false);
    wantedAnswer.want('another');
    wantedAnswer.want('s');
    await until(() => document.activeElement === input);
    expect(wantedAnswer.isWanted('s')).toBe(false);
  });

  it('hides what getpass() asks for, and offers no saved password', async () => {
    const [open, secret] = [await field(false), await field(true)];
    expect([open.type, secret.type]).toEqual(['text', 'text']);
    expect([open, secret].map(each => each.classList.contains('jex-Masked'))).toEqual([false, true]);
  });
});
