/** Errors of the server, and their meaning for the connection. */

/** An answer that is no success. */
export class ApiError extends Error {
  /**
   * @param status The HTTP status.
   * @param code The stable code of `exec/v1`; null if something else has answered.
   */
  constructor(
    readonly status: number,
    readonly code: string | null,
    message: string
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** Read an answer of the server's as an error. */
export async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  let message = `${response.status} ${response.statusText}`;
  let code: string | null = null;
  try {
    const data = JSON.parse(text) as { message?: unknown; code?: unknown } | null;
    message = typeof data?.message === 'string' ? data.message : message;
    code = typeof data?.code === 'string' ? data.code : null;
  } catch {
    // A page for people, of a proxy or of a server without exec/v1: the status says all there is to know.
  }
  return new ApiError(response.status, code, message);
}

/** Why there is no connection, as far as that decides what to tell a person. */
export type Trouble = 'no-extension' | 'too-old' | 'forbidden' | 'policies' | 'unreachable';

/** Say what an error of the change feed means. */
export function troubleOf(error: unknown): Trouble {
  if (!(error instanceof ApiError)) {
    return 'unreachable';
  }
  if (error.status === 401 || error.status === 403) {
    return 'forbidden';
  }
  if (error.status === 404) {
    // exec/v1 says "not_found" of a path that it does not have; a server without it says so in other words.
    return error.code === null ? 'no-extension' : 'too-old';
  }
  return error.code === 'policies_invalid' ? 'policies' : 'unreachable';
}

/** The sentence to show for whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
