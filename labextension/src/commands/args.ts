/** Arguments of commands, as JSON schemas and as values. */

import type { ReadonlyJSONObject, ReadonlyPartialJSONObject } from '@lumino/coreutils';

function schema(
  properties: { [name: string]: string },
  required = Object.keys(properties)
): { args: ReadonlyJSONObject } {
  const described = Object.entries(properties).map(([name, description]) => [
    name,
    { type: 'string', description }
  ]);
  return {
    args: {
      type: 'object',
      properties: Object.fromEntries(described) as ReadonlyJSONObject,
      required
    }
  };
}

export const NO_ARGS = schema({});
export const SESSION_ARGS = schema({ sessionId: 'The id of a session.' });
export const OWNER_ARGS = schema(
  { owner: 'The principal whose sessions it is about; all if it is left out.' },
  []
);
export const KIND_ARGS = schema(
  {
    sessionId: 'The id of a session.',
    kind: 'A kind of code that is approved for it; all if it is left out.'
  },
  ['sessionId']
);
export const CHECKPOINT_ARGS = schema(
  { sessionId: 'The id of a session.', checkpoint: 'The id of a checkpoint of the session.' },
  ['sessionId']
);
export const PORT_ARGS = schema({
  sessionId: 'The id of a session.',
  port: 'The number of the port.'
});
export const RULE_ARGS = schema({
  sessionId: 'The id of a session.',
  rule: 'A network rule, such as example.com:443.'
});
export const EXECUTION_ARGS = schema({ executionId: 'The id of an execution.' });
export const KERNEL_ARGS = schema(
  { kernelId: 'The id of a running kernel; by default that of the current notebook or console.' },
  []
);
export const CODE_ARGS = schema({ code: 'The text to copy.' });
export const FILE_ARGS = schema({
  sessionId: 'The id of a session.',
  path: "The file's path in the session's directory."
});
export const OUTPUT_ARGS = schema({
  executionId: 'The id of an execution.',
  name: 'stdout, stderr or the name of an output that was left out.'
});

/** Return an argument that must be there. */
export function text(args: ReadonlyPartialJSONObject, name: string): string {
  const value = args[name];
  if (typeof value !== 'string') {
    throw new Error(`The command needs the argument '${name}'.`);
  }
  return value;
}
