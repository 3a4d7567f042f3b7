// Adds the token of MCP_TOKEN to every request of the process. Loaded with `node --import` where a program has no option
// for headers. Each of Node's two HTTP clients has a channel, and the package undici has that of fetch.
import diagnosticsChannel from 'node:diagnostics_channel';

const authorization = `Bearer ${process.env.MCP_TOKEN}`;
diagnosticsChannel.subscribe('undici:request:create', ({ request }) => {
  request.addHeader('authorization', authorization);
});
diagnosticsChannel.subscribe('http.client.request.created', ({ request }) => {
  request.setHeader('authorization', authorization);
});
