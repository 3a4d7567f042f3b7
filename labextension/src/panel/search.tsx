/** Results of the server's search in all executions, those of ended sessions included. */

import * as React from 'react';

import { messageOf } from '../api/errors';
import type { IFound } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { oneLine } from '../safety/text';
import { useExecState, useServices } from './services';
import { Executions, UNLISTED } from './timeline';

/** The server finds nothing shorter. */
const MIN_CHARS = 3;
/** Somebody who types is not done yet. */
const DELAY_MS = 250;
const PAGE = 50;
/** For fewer results, people type more of the text. */
const MAX_SHOWN = 1000;

interface IResults {
  readonly found: readonly IFound[];
  readonly complete: boolean;
  readonly more: boolean;
  /** Why there are none; null if all is well. */
  readonly problem: string | null;
}

/** Return whether the server is asked for a text. */
export function isSearched(text: string): boolean {
  return text.trim().length >= MIN_CHARS;
}

export function SearchResults(props: { text: string }): React.ReactElement | null {
  const text = props.text.trim();
  return isSearched(text) ? <Results text={text} /> : null;
}

function Results({ text }: { text: string }): React.ReactElement {
  const { trans } = useServices();
  const [results, showMore] = useResults(text);
  const found = results?.found ?? [];
  return (
    <section className="jex-Group" aria-label={trans.__('Runs found')} aria-busy={results === null}>
      <h3 className="jex-Group-title">
        <span className="jex-Ellipsis">{trans.__('Runs')}</span>
        <span className="jex-Count">{`${found.length}${results?.more ? '+' : ''}`}</span>
      </h3>
      <div role="status">
        {results === null && <p className="jex-Hint">{trans.__('Searching…')}</p>}
        {results !== null && results.problem !== null && (
          <p className="jex-Hint">{oneLine(results.problem, 500)}</p>
        )}
        {results?.problem === null && found.length === 0 && (
          <p className="jex-Hint">{trans.__('No matches')}</p>
        )}
        {results?.complete === false && (
          <p className="jex-Hint">{trans.__('Older runs are still being indexed.')}</p>
        )}
      </div>
      {bySession(found).map(part => (
        <FoundInSession key={part[0]?.execution.id} found={part} />
      ))}
      {results?.more && (
        <button className="jex-Button jex-Earlier" onClick={showMore}>
          {trans.__('Show earlier')}
        </button>
      )}
    </section>
  );
}

/** Results that follow each other and are of one session. */
function FoundInSession(props: { found: readonly IFound[] }): React.ReactElement | null {
  const { commands, trans } = useServices();
  const { sessions, tokens } = useExecState();
  const [first] = props.found;
  if (first === undefined) {
    return null;
  }
  const id = first.execution.session_id;
  const owner = first.token_name || tokens.get(first.owner)?.name;
  const name = oneLine(first.session_name) || id;
  return (
    <div className="jex-Found">
      <p className="jex-Found-where">
        <span className="jex-Ellipsis" title={id}>
          {owner ? trans.__('%1 of %2', name, oneLine(owner)) : name}
        </span>
        {/* The view, where there is one: the panel would have to leave the results. */}
        <button
          className="jex-Link"
          title={trans.__('Show session %1', name)}
          onClick={() => {
            const view = commands.isVisible(CommandIDs.openView);
            void commands.execute(view ? CommandIDs.openView : CommandIDs.showSession, { sessionId: id });
          }}
        >
          {trans.__('Show session')}
        </button>
      </p>
      <Executions
        executions={props.found.map(each => each.execution)}
        sessionOf={() => sessions.get(id) ?? UNLISTED}
        within=""
        expandNewest={false}
      />
    </div>
  );
}

/** Return the results of a text, null until there are some, and what asks for more of them. */
function useResults(text: string): [IResults | null, () => void] {
  const { model } = useServices();
  const [results, setResults] = React.useState<IResults | null>(null);
  const current = React.useRef(new AbortController());
  const read = async (known: readonly IFound[], signal: AbortSignal): Promise<void> => {
    try {
      const last = known[known.length - 1]?.execution.id;
      const page = await model.client.search(text, PAGE, signal, last);
      const found = [...known, ...page.found];
      const more = page.found.length === PAGE && found.length < MAX_SHOWN;
      if (!signal.aborted) {
        setResults({ found, complete: page.complete, more, problem: null });
      }
    } catch (reason) {
      if (!signal.aborted) {
        setResults({ found: known, complete: true, more: false, problem: messageOf(reason) });
      }
    }
  };
  React.useEffect(() => {
    const stop = new AbortController();
    current.current = stop;
    setResults(null);
    const timer = window.setTimeout(() => void read([], stop.signal), DELAY_MS);
    return () => {
      window.clearTimeout(timer);
      stop.abort();
    };
  }, [model, text]);
  return [results, () => void read(results?.found ?? [], current.current.signal)];
}

function bySession(found: readonly IFound[]): readonly (readonly IFound[])[] {
  const parts: IFound[][] = [];
  for (const each of found) {
    const last = parts[parts.length - 1];
    if (last !== undefined && last[0]?.execution.session_id === each.execution.session_id) {
      last.push(each);
    } else {
      parts.push([each]);
    }
  }
  return parts;
}
