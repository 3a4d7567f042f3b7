/** Form for the answer to `input()`. */

import * as React from 'react';

import { messageOf } from '../api/errors';
import { oneLine } from '../safety/text';
import { wantedAnswer } from './pendingFocus';
import { useServices } from './services';

export function InputForm(props: {
  executionId: string;
  sessionId: string;
  prompt: string;
  password: boolean;
}): React.ReactElement {
  const { model, trans } = useServices();
  const [value, setValue] = React.useState('');
  const [problem, setProblem] = React.useState<string | null>(null);
  const field = React.useRef<HTMLInputElement>(null);
  React.useEffect(() => {
    const focus = (): void => {
      if (wantedAnswer.take(props.sessionId)) {
        // The panel may just have been opened, and take its place in the next frame.
        window.requestAnimationFrame(() => field.current?.focus());
      }
    };
    focus();
    wantedAnswer.changed.connect(focus);
    return () => {
      wantedAnswer.changed.disconnect(focus);
    };
  }, [props.sessionId]);
  const prompt = oneLine(props.prompt) || trans.__('The code asks for input');
  const answer = (event: React.FormEvent): void => {
    event.preventDefault();
    model.client.answerInput(props.executionId, value).then(
      () => setValue(''),
      (error: unknown) => setProblem(messageOf(error))
    );
  };
  return (
    <form className="jex-InputForm" onSubmit={answer}>
      <label>
        <span>{prompt}</span>
        <input
          className={props.password ? 'jex-Input jex-Masked' : 'jex-Input'}
          // Never a field for passwords: what a browser has saved is not for an agent's code. The style hides the letters.
          type="text"
          autoComplete="off"
          ref={field}
          value={value}
          onChange={event => setValue(event.target.value)}
        />
      </label>
      <button className="jex-Button" type="submit">
        {trans.__('Answer')}
      </button>
      {problem !== null && <p role="alert">{problem}</p>}
    </form>
  );
}
