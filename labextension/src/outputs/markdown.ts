/** Markdown of agents, in bounded time. */

const MOST_SECONDS = 1;

/**
 * Return Markdown as HTML, which is not to be trusted; what takes longer than `mostSeconds` is the text that it is.
 *
 * The parser looks for the end of each thing that may have begun: text of nothing but begins takes it the square of the
 * length, and more. The page would stand still meanwhile.
 */
export async function markdownToHtml(source: string, mostSeconds = MOST_SECONDS): Promise<string> {
  const { Marked } = await import('marked');
  const until = performance.now() + mostSeconds * 1000;
  const look = (): undefined => {
    if (performance.now() > until) {
      throw new Error(`It takes longer than ${mostSeconds} s.`);
    }
  };
  // Extensions are asked at each step, which is the only place where the parser can be stopped.
  const extensions = [
    { name: 'blockClock', level: 'block' as const, tokenizer: look },
    { name: 'inlineClock', level: 'inline' as const, tokenizer: look }
  ];
  try {
    return await new Marked({ gfm: true, extensions }).parse(source, { async: true });
  } catch (error) {
    // Also where quotes and lists lie in each other deeper than the parser can go.
    console.debug('Markdown is shown as text.', error);
    const text = document.createElement('pre');
    text.textContent = source;
    return text.outerHTML;
  }
}
