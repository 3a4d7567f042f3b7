/** The outputs of an execution, as they come. */

import * as React from 'react';

import type { IExecution } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { isOpen } from '../model/state';
import type { IOutputs, Item } from '../outputs/fold';
import { follow, type IFollowed, NOTHING_YET } from '../outputs/follower';
import { chosen, plain, render } from '../outputs/renderers';
import { oneLine } from '../safety/text';
import { InputForm } from './input';
import { useServices } from './services';
import { sizeWords } from '../words';

export function Outputs(props: { execution: IExecution }): React.ReactElement {
  const { execution } = props;
  const { model, trans } = useServices();
  const [followed, setFollowed] = React.useState<IFollowed>(NOTHING_YET);
  const running = isOpen(execution);
  const lasting = React.useRef(running); // as it was: its end comes over the same connection
  React.useEffect(() => {
    const stop = new AbortController();
    void follow(model.client, execution.id, lasting.current, stop.signal, setFollowed);
    return () => stop.abort();
  }, [model, execution.id]);

  const { outputs, problem, waiting } = followed;
  const scroller = useTail(outputs);
  const cut = outputs.omitted > 0 || outputs.items.some(item => item.kind === 'stream' && item.cutChars > 0);
  return (
    <div
      className="jex-Outputs"
      role="log"
      // Focusable, so that keys scroll it as well.
      tabIndex={0}
      aria-label={trans.__('Output')}
      aria-live="off"
      ref={scroller.ref}
      onScroll={scroller.onScroll}
    >
      {outputs.omitted > 0 && (
        <p className="jex-Note">
          {trans._n('1 earlier output hidden.', '%1 earlier outputs hidden.', outputs.omitted)}
        </p>
      )}
      {outputs.items.map(item => (
        <OutputItem key={item.key} item={item} />
      ))}
      {outputs.unresponsive !== null && (
        <p className="jex-Note jex-Warn">
          {trans.__('The kernel does not answer: %1', oneLine(outputs.unresponsive))}
        </p>
      )}
      {outputs.input !== null && running && (
        <InputForm executionId={execution.id} sessionId={execution.session_id} {...outputs.input} />
      )}
      {waiting && (
        <p className="jex-Note">
          {trans.__('Only three runs are shown live. Close one to see this output.')}
        </p>
      )}
      {problem !== null && (
        <p className="jex-Note" role="alert">
          {oneLine(problem, 500)}
        </p>
      )}
      {(cut || execution.truncated !== null) && <WholeOutput execution={execution} running={running} />}
    </div>
  );
}

/** Keep the end in view while output comes, unless the person has scrolled away from it. */
function useTail(outputs: IOutputs): { ref: React.RefObject<HTMLDivElement>; onScroll: () => void } {
  const ref = React.useRef<HTMLDivElement>(null);
  const atEnd = React.useRef(true);
  const endsInError = outputs.items[outputs.items.length - 1]?.kind === 'error';
  React.useEffect(() => {
    const node = ref.current;
    // Ended output is read from its start, but an error names its cause at its end.
    if (node === null || (outputs.end !== null && !endsInError)) {
      return undefined;
    }
    // Rendered content takes its size later.
    const follow = (): void => {
      if (atEnd.current) {
        node.scrollTop = node.scrollHeight;
      }
    };
    const observer = new MutationObserver(follow);
    observer.observe(node, { childList: true, subtree: true, characterData: true });
    follow();
    return () => observer.disconnect();
  }, [outputs.end, endsInError]);
  const onScroll = (): void => {
    const node = ref.current;
    atEnd.current = node === null || node.scrollTop + node.clientHeight >= node.scrollHeight - 24;
  };
  return { ref, onScroll };
}

const OutputItem = React.memo(function OutputItem({ item }: { item: Item }): React.ReactElement {
  const { trans } = useServices();
  switch (item.kind) {
    case 'stream':
      return (
        <div className="jex-Output" data-stream={item.name}>
          {item.cutChars > 0 && (
            <p className="jex-Note">{trans.__('%1 of earlier text hidden.', sizeWords(item.cutChars))}</p>
          )}
          <Rendered shown={plain(item.text)} label={trans.__('Text')} />
        </div>
      );
    case 'error': {
      const { name, value, traceback } = item.error;
      return (
        <div className="jex-Output" data-stream="error">
          {/* Without the line of dashes that IPython begins with. */}
          <Rendered
            shown={plain(
              traceback.replace(/^(?:\u001B\[[0-9;]*m)*-{20,}(?:\u001B\[[0-9;]*m)*\n/, '') ||
                `${name}: ${value}`
            )}
            label={trans.__('Error')}
          />
        </div>
      );
    }
    default:
      return (
        <div className="jex-Output">
          <Rendered shown={chosen(item.data)} label={trans.__('Picture made by the code')} />
        </div>
      );
  }
});

export function Rendered(props: { shown: ReturnType<typeof chosen>; label: string }): React.ReactElement {
  const { renderers } = useServices();
  const ref = React.useRef<HTMLDivElement>(null);
  const { mimeType, data } = props.shown;
  const source = data[mimeType];
  React.useEffect(() => {
    const rendered = render(renderers, { mimeType, data: { [mimeType]: source } }, props.label);
    ref.current?.replaceChildren(rendered.node);
    return rendered.dispose;
  }, [renderers, mimeType, source, props.label]);
  return <div className="jex-Rendered" ref={ref} />;
}

/** Links to the whole output as files. */
function WholeOutput(props: { execution: IExecution; running: boolean }): React.ReactElement {
  const { commands, trans } = useServices();
  const { execution, running } = props;
  if (running) {
    return <p className="jex-Note">{trans.__('All of it can be downloaded when the code has ended.')}</p>;
  }
  const spooled = execution.truncated?.spooled ?? [];
  const names = new Set(['stdout', 'stderr', ...spooled.map(each => each.name)]);
  return (
    <p className="jex-Note">
      {trans.__('Download all of:')}{' '}
      {[...names].map(name => (
        <button
          key={name}
          className="jex-Link"
          onClick={() =>
            void commands.execute(CommandIDs.downloadOutput, { executionId: execution.id, name })
          }
        >
          {oneLine(name, 40)}
        </button>
      ))}
      {execution.truncated?.unspooled_reason && (
        <span>{oneLine(execution.truncated.unspooled_reason, 300)}</span>
      )}
    </p>
  );
}
