// @modelcontextprotocol/client, for revision 2026-07-28, and @modelcontextprotocol/ext-tasks for tasks.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { createTaskSessionFromClient, resultFromTaskOutcome } from '@modelcontextprotocol/ext-tasks/client';

const REVISION = '2026-07-28';
const INFO = { name: 'test-typescript', version: '1.0.0' };
const CAPABILITIES = { elicitation: { form: {} } };
const WITH_TASKS = { ...CAPABILITIES, extensions: { 'io.modelcontextprotocol/tasks': {} } };

// The client's own decoder refuses results that are tasks, so their messages have a transport of their own.
async function openTaskWire(url, headers) {
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  const waiting = new Map();
  let sent = 0;
  transport.onmessage = message => {
    waiting.get(message.id)?.(message);
    waiting.delete(message.id);
  };
  await transport.start();
  transport.setProtocolVersion(REVISION);
  return {
    close: () => transport.close(),
    dispatch: (request, options) =>
      new Promise((resolve, reject) => {
        const id = `task-${++sent}`;
        waiting.set(id, resolve);
        options?.signal?.addEventListener('abort', () => reject(options.signal.reason));
        transport.send({ ...request, jsonrpc: '2.0', id }).catch(reject);
      })
  };
}

export async function connect(url, headers, person) {
  const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: REVISION } } });
  client.setRequestHandler('elicitation/create', request => person.answer(request.params));
  client.setNotificationHandler('notifications/resources/updated', notice => person.notice(notice.params));
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  const wire = await openTaskWire(url, headers);
  const session = createTaskSessionFromClient(client, {
    endpointId: 'test',
    rawDispatch: wire.dispatch,
    v2RequestFraming: { protocolVersion: REVISION, clientInfo: INFO, clientCapabilities: WITH_TASKS }
  });
  return {
    revision: () => client.getNegotiatedProtocolVersion(),
    tools: async () => (await client.listTools()).tools,
    read: uri => client.readResource({ uri }),
    watch: async uri => (await client.listen({ resourceSubscriptions: [uri] })).honoredFilter,
    call: (name, given, options) => client.callTool({ name, arguments: given }, options),
    startTask: async (name, given) => {
      const execution = await session.callTool(name, given);
      let task = null;
      if (execution.kind === 'task') {
        await execution.handoff(reference => {
          task = reference;
        });
      }
      return task;
    },
    resumeTask: async reference => {
      const { outcome } = await (await session.resumeTask(reference)).settle();
      return resultFromTaskOutcome(outcome);
    },
    close: async () => {
      await session.close();
      await wire.close();
      await client.close();
    }
  };
}
