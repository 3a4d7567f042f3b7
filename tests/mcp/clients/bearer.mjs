// Adds the token of MCP_TOKEN to every request of the process. Loaded with `node --import` where a program has no option
// for headers. Node's fetch and the package undici both publish this channel.
import diagnosticsChannel from 'node:diagnostics_channel';

const token = process.env.MCP_TOKEN;
diagnosticsChannel.subscribe('undici:request:create', ({ request }) => {
  request.addHeader('authorization', `Bearer ${token}`);
});
