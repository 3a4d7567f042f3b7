// Runs one MCP client as a process that tests drive: a command for each line of input, its events as lines of output.
// driven_client.py has the commands. The client's module is the first argument; MCP_URL and MCP_TOKEN say where to.
import readline from 'node:readline';

const { connect } = await import(process.argv[2]);
const aborts = new Map();

function tell(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

const headers = { Authorization: `Bearer ${process.env.MCP_TOKEN}` };
const person = {
  answer: question => {
    tell({ asked: question.message });
    return { action: 'accept', content: JSON.parse(process.env.MCP_ANSWER ?? '{}') };
  },
  notice: change => tell({ updated: change.uri })
};
const client = await connect(new URL(process.env.MCP_URL), headers, person);

const commands = {
  tools: () => client.tools(),
  read: ({ uri }) => client.read(uri),
  watch: ({ uri }) => client.watch(uri),
  start_task: ({ name, arguments: given }) => client.startTask(name, given),
  resume_task: ({ task }) => client.resumeTask(task),
  cancel: ({ call }) => aborts.get(call)?.abort('cancelled by the test'),
  call: ({ id, name, arguments: given }) => {
    const abort = new AbortController();
    aborts.set(id, abort);
    return client.call(name, given, {
      signal: abort.signal,
      onprogress: progress => tell({ id, progress })
    });
  }
};

async function run(command) {
  try {
    tell({ id: command.id, result: (await commands[command.do](command)) ?? null });
  } catch (error) {
    tell({ id: command.id, error: { code: error?.code ?? null, message: String(error?.message ?? error) } });
  }
}

tell({ connected: client.revision() });
for await (const line of readline.createInterface({ input: process.stdin })) {
  void run(JSON.parse(line));
}
await client.close();
process.exit(0);
