/** Shows a secret once, with what to paste. */

import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { checkIcon, copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { messageOf } from '../api/errors';
import { copy } from '../commands/copy';
import { oneLine } from '../safety/text';
import type { IIssued } from './calls';
import { type ISnippet, missing, snippets } from './snippets';
import { tokenName } from './tokenWords';

/** How long a button says that it has copied. */
const COPIED_SECONDS = 2;

/**
 * Resolves when the person has closed it; nothing on the page has the secret then.
 *
 * It is text of the page and nothing else: no attribute, no field, nothing that is kept.
 */
export async function showIssued(
  trans: TranslationBundle,
  issued: IIssued,
  server: { url: string; kernelName: string; hasMcp: boolean }
): Promise<void> {
  await showDialog({
    title: trans.__('Token “%1”', oneLine(tokenName(issued.token), 60)),
    body: <Issued trans={trans} issued={issued} {...server} />,
    // Neither Escape nor a click beside it loses the secret.
    hasClose: false,
    focusNodeSelector: '.jex-Copyable button',
    buttons: [Dialog.okButton({ label: trans.__('Done') })]
  });
}

function Issued(props: {
  trans: TranslationBundle;
  issued: IIssued;
  url: string;
  kernelName: string;
  hasMcp: boolean;
}): React.ReactElement {
  const { trans, issued, url, kernelName, hasMcp } = props;
  const { token, secret } = issued;
  const body = React.useRef<HTMLDivElement>(null);
  useOwnKeys(body);
  return (
    <div className="jex-Issued" ref={body}>
      <p>
        {trans.__('The token is shown once. Anyone who has it can use it until %1.', until(token.expires_at))}
      </p>
      <Copyable trans={trans} what={trans.__('the token')} text={secret} />
      <Snippets trans={trans} all={snippets(url, secret, kernelName, hasMcp)} scopes={token.scopes} />
    </div>
  );
}

/** A tab for each place where a token can be pasted. */
function Snippets(props: {
  trans: TranslationBundle;
  all: readonly ISnippet[];
  scopes: readonly string[];
}): React.ReactElement | null {
  const { trans, all } = props;
  const [chosen, setChosen] = React.useState(all[0]?.id);
  const prefix = React.useId();
  const snippet = all.find(each => each.id === chosen);
  if (snippet === undefined) {
    return null;
  }
  const lacking = missing(snippet, props.scopes);
  const title = titleOf(trans, snippet.id);
  return (
    <>
      <div role="tablist" className="jex-Tabs" aria-label={trans.__('Where the agent runs')}>
        {all.map(({ id }) => (
          <button
            key={id}
            id={`${prefix}${id}`}
            type="button"
            role="tab"
            aria-selected={id === chosen}
            aria-controls={`${prefix}panel`}
            tabIndex={id === chosen ? 0 : -1}
            onClick={() => setChosen(id)}
          >
            {titleOf(trans, id)}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${prefix}panel`} aria-labelledby={`${prefix}${snippet.id}`}>
        {lacking.length > 0 && (
          <p className="jex-Note jex-Warn">
            {trans.__('The token may not do all of this: it lacks %1.', lacking.join(', '))}
          </p>
        )}
        {snippet.install !== null && (
          <>
            <h3>{trans.__('Install')}</h3>
            <Copyable
              key={`install ${snippet.id}`}
              trans={trans}
              what={trans.__('the install line for %1', title)}
              text={snippet.install}
            />
          </>
        )}
        <h3>{snippet.id === 'mcp' ? trans.__('Run where the client is') : trans.__('Run')}</h3>
        <Copyable
          key={snippet.id}
          trans={trans}
          what={trans.__('the snippet for %1', title)}
          text={snippet.code}
        />
        {snippet.program !== undefined && (
          <>
            <h3>{trans.__('Or have the client start a program')}</h3>
            <Copyable
              key={`program ${snippet.id}`}
              trans={trans}
              what={trans.__('the snippet for a client that starts a program')}
              text={snippet.program}
            />
          </>
        )}
      </div>
    </>
  );
}

/**
 * Enter is for the button that has the focus: the dialog would take it for its own one, and close. Arrows lead from tab
 * to tab, not to the dialog's buttons. And Tab leads from its last button to the first of ours, which was not there yet
 * when the dialog looked for one.
 */
export function useOwnKeys(body: React.RefObject<HTMLElement>): void {
  React.useEffect(() => {
    const keep = (event: KeyboardEvent): void => {
      const { key, target } = event;
      const buttons = body.current?.closest('.jp-Dialog')?.querySelectorAll('button');
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step !== undefined && target instanceof HTMLElement && target.matches('.jex-Issued [role="tab"]')) {
        event.stopPropagation();
        event.preventDefault();
        const tabs = [...(target.parentElement?.querySelectorAll('button') ?? [])];
        const next = tabs[(tabs.findIndex(each => each === target) + step + tabs.length) % tabs.length];
        next?.click();
        next?.focus();
      } else if (key === 'Enter' && target instanceof Node && body.current?.contains(target)) {
        event.stopPropagation();
      } else if (key === 'Tab' && !event.shiftKey && buttons && target === buttons[buttons.length - 1]) {
        event.stopPropagation();
        event.preventDefault();
        buttons[0]?.focus();
      }
    };
    window.addEventListener('keydown', keep, true);
    return () => window.removeEventListener('keydown', keep, true);
  }, [body]);
}

export function Copyable(props: {
  trans: TranslationBundle;
  what: string;
  text: string;
}): React.ReactElement {
  const { trans, what, text } = props;
  const [copied, setCopied] = React.useState(false);
  const [problem, setProblem] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = window.setTimeout(() => setCopied(false), COPIED_SECONDS * 1000);
    return () => window.clearTimeout(timer);
  }, [copied]);
  const Icon = copied ? checkIcon : copyIcon;
  const label = trans.__('Copy %1', what);
  return (
    <div className="jex-Copyable">
      <pre className="jex-Code" tabIndex={0} aria-label={what}>
        <code>{text}</code>
      </pre>
      <button
        className="jex-Button"
        type="button"
        aria-label={label}
        onClick={() =>
          void copy(text).then(
            () => setCopied(true),
            (error: unknown) => setProblem(messageOf(error))
          )
        }
      >
        <Icon.react tag="span" className="jex-Caret" />
        {copied ? trans.__('Copied') : trans.__('Copy')}
      </button>
      <span className="jex-Hidden" role="status">
        {copied && trans.__('Copied %1.', what)}
      </span>
      {problem !== null && <span role="alert">{problem}</span>}
    </div>
  );
}

function titleOf(trans: TranslationBundle, id: ISnippet['id']): string {
  switch (id) {
    case 'python':
      return trans.__('Python');
    case 'autogen':
      return trans.__('AutoGen');
    case 'mcp':
      return trans.__('MCP client');
    default:
      return trans.__('curl');
  }
}

function until(iso: string): string {
  return new Date(iso).toLocaleString();
}
