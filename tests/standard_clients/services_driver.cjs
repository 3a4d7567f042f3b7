// Drives @jupyterlab/services as its test asks, by one line of JSON for each request and for each answer.
const { createRequire } = require('module');
const path = require('path');
const readline = require('readline');

const load = createRequire(path.join(__dirname, '../../labextension/package.json'));
const { KernelManager, KernelSpecAPI, ServerConnection, SessionManager } = load('@jupyterlab/services');

// It logs to the standard output, which has the answers.
console.debug = console.log = console.error;

let settings, kernels, sessions, session;

async function run(code) {
  const future = session.kernel.requestExecute({ code });
  const texts = [];
  future.onIOPub = message => {
    const { content } = message;
    const text = { stream: content.text, execute_result: content.data?.['text/plain'], error: content.ename };
    texts.push(text[message.header.msg_type] ?? '');
  };
  const reply = await future.done;
  return [reply.content.status, texts.join('')];
}

const actions = {
  kernelspecs: async () => Object.keys((await KernelSpecAPI.getSpecs(settings)).kernelspecs),
  start: async () => {
    kernels = new KernelManager({ serverSettings: settings });
    sessions = new SessionManager({ kernelManager: kernels, serverSettings: settings });
    await sessions.ready;
    session = await sessions.startNew({ path: 'a.ipynb', name: 'a', type: 'notebook', kernel: { name: 'python3' } });
    await session.kernel.info;
    return null;
  },
  interrupt: async () => {
    const running = run("import time; time.sleep(60)");
    while (session.kernel.status !== 'busy') {
      await new Promise(done => session.kernel.statusChanged.connect(done));
    }
    await session.kernel.interrupt();
    return running;
  },
  restart: async () => (await session.kernel.restart(), null),
  shutdown: async () => (await session.shutdown(), null),
  // A client without a connection keeps what it is to send.
  run_or_wait: async () => {
    const waited = new Promise(done => setTimeout(() => done('not sent'), 2000));
    return Promise.race([run("'after' + '_revocation'").catch(() => 'not sent'), waited]);
  },
  list_status: async () =>
    (await ServerConnection.makeRequest(`${settings.baseUrl}api/kernels`, {}, settings)).status
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let answer = null;
    if (request.settings) {
      settings = new Function('ServerConnection', `return ${request.settings}`)(ServerConnection);
    } else {
      answer = await (request.run ? run(request.run) : actions[request.do]());
    }
    process.stdout.write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
