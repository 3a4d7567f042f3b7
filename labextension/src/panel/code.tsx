/** Highlighted code. */

import * as React from 'react';

import { reveal } from '../safety/text';
import { useServices } from './services';

/** Highlighting is done at once, so longer code is left plain. */
const MAX_HIGHLIGHTED_CHARS = 20_000;
const MAX_SHOWN_CHARS = 100_000;

export const Code = React.memo(function Code(props: { code: string; language: string }): React.ReactElement {
  const { languages, trans } = useServices();
  const ref = React.useRef<HTMLElement>(null);
  const code = reveal(props.code.slice(0, MAX_SHOWN_CHARS));
  React.useEffect(() => {
    const host = ref.current;
    if (host === null) {
      return undefined;
    }
    host.textContent = code;
    const language = languages?.findBest(props.language === 'python' ? 'ipython' : props.language) ?? null;
    if (languages === null || language === null || code.length > MAX_HIGHLIGHTED_CHARS) {
      return undefined;
    }
    let wanted = true;
    const painted = document.createElement('code');
    languages.highlight(code, language, painted).then(
      () => wanted && host.replaceChildren(...painted.childNodes),
      (reason: unknown) => console.warn('Code could not be highlighted.', reason)
    );
    return () => {
      wanted = false;
    };
  }, [code, props.language, languages]);
  return (
    <>
      <pre className="jex-Code" tabIndex={0} aria-label={trans.__('Code')}>
        <code ref={ref} />
      </pre>
      {props.code.length > MAX_SHOWN_CHARS && (
        <p className="jex-Note">
          {trans.__('Only the first 100,000 characters are shown. Copy the code to see all of it.')}
        </p>
      )}
    </>
  );
});
