import { ReactWidget } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';
import * as React from 'react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { useWhileVisible } from '../src/panel/visible';
import { until } from './helpers';

/** What a browser tells of an element; jsdom lays nothing out. */
class Screen {
  static tell: ((isIntersecting: boolean) => void) | null = null;

  constructor(callback: (entries: { isIntersecting: boolean }[]) => void) {
    Screen.tell = isIntersecting => callback([{ isIntersecting }]);
  }

  observe(): void {
    // An element that is there says so at once, in a browser.
  }

  disconnect(): void {
    Screen.tell = null;
  }
}

function Looked(props: { action: () => void }): React.ReactElement {
  const ref = React.useRef<HTMLDivElement>(null);
  useWhileVisible(ref, 10, true, props.action);
  return <div ref={ref} />;
}

describe('useWhileVisible', () => {
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
  });

  it('acts only while the element is on the screen, and the page in view', async () => {
    vi.stubGlobal('IntersectionObserver', Screen);
    const page = vi.spyOn(document, 'visibilityState', 'get').mockReturnValue('visible');
    const action = vi.fn();
    const widget = ReactWidget.create(<Looked action={action} />);
    Widget.attach(widget, document.body);
    await until(() => Screen.tell !== null);
    vi.useFakeTimers();
    vi.advanceTimersByTime(30_000);
    expect(action).toHaveBeenCalledTimes(0);

    Screen.tell?.(true);
    expect(action).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(20_000);
    expect(action).toHaveBeenCalledTimes(3);

    page.mockReturnValue('hidden');
    document.dispatchEvent(new Event('visibilitychange'));
    vi.advanceTimersByTime(60_000);
    expect(action).toHaveBeenCalledTimes(3);

    page.mockReturnValue('visible');
    document.dispatchEvent(new Event('visibilitychange'));
    expect(action).toHaveBeenCalledTimes(4);

    Screen.tell?.(false); // another tab of the side bar, or scrolled away
    vi.advanceTimersByTime(60_000);
    expect(action).toHaveBeenCalledTimes(4);

    Screen.tell?.(true);
    expect(action).toHaveBeenCalledTimes(5);
    const gone = new Promise<void>(resolve => widget.disposed.connect(() => resolve()));
    vi.useRealTimers();
    widget.dispose();
    await gone;
    await until(() => Screen.tell === null);
  });
});
