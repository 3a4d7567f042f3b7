/** Actions to repeat only while the person sees the result. */

import * as React from 'react';

/** Do something at once and then every so often, while `running`, the element is on the screen and the page in view. */
export function useWhileVisible(
  element: React.RefObject<Element>,
  everySeconds: number,
  running: boolean,
  action: () => void
): void {
  React.useEffect(() => {
    if (!running || element.current === null) {
      return undefined;
    }
    let timer: number | undefined;
    let onScreen = false;
    const update = (): void => {
      window.clearInterval(timer);
      if (onScreen && document.visibilityState === 'visible') {
        action();
        timer = window.setInterval(action, everySeconds * 1000);
      }
    };
    const observer = new IntersectionObserver(entries => {
      onScreen = entries[entries.length - 1]?.isIntersecting ?? false;
      update();
    });
    observer.observe(element.current);
    document.addEventListener('visibilitychange', update);
    return () => {
      observer.disconnect();
      document.removeEventListener('visibilitychange', update);
      window.clearInterval(timer);
    };
  }, [element, everySeconds, running, action]);
}
