// @modelcontextprotocol/sdk, for revision 2025-11-25.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  ElicitRequestSchema,
  ResourceUpdatedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';

export async function connect(url, headers, person) {
  const client = new Client(
    { name: 'test-typescript-1', version: '1.0.0' },
    { capabilities: { elicitation: { form: {} } } }
  );
  client.setRequestHandler(ElicitRequestSchema, request => person.answer(request.params));
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, notice => person.notice(notice.params));
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  await client.connect(transport);
  return {
    revision: () => transport.protocolVersion,
    tools: async () => (await client.listTools()).tools,
    read: uri => client.readResource({ uri }),
    watch: uri => client.subscribeResource({ uri }),
    call: (name, given, options) => client.callTool({ name, arguments: given }, CallToolResultSchema, options),
    close: async () => {
      await transport.terminateSession();
      await client.close();
    }
  };
}
