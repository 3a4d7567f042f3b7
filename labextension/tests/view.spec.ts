import { nullTranslator } from '@jupyterlab/translation';
import { describe, expect, it } from 'vitest';

import { barsOf, fittingMinutes, percentOf, ticksOf } from '../src/view/axis';
import { laneWords } from '../src/view/lane';
import { maxPreviewBytes, previewOf } from '../src/view/preview';
import { pathsOf, scaleOf } from '../src/view/series';
import { execution } from './helpers';

const trans = nullTranslator.load('jupyter_exec_ext');
const MINUTE = 60_000;
const NOON = Date.parse('2026-01-01T12:00:00Z');
const RANGE = { from: NOON - 10 * MINUTE, to: NOON };

function ran(id: string, from: number, to: number | null, state: 'ok' | 'error' | 'running' = 'ok') {
  const iso = (minutes: number): string => new Date(NOON + minutes * MINUTE).toISOString();
  return execution(id, { state, started_at: iso(from), finished_at: to === null ? null : iso(to) });
}

describe('the time axis', () => {
  it('has a bar for each execution that ran in its time, cut at its ends', () => {
    const executions = [
      ran('now', -1, null, 'running'),
      ran('in', -5, -4),
      ran('over the start', -20, -9, 'error'),
      ran('before', -20, -11),
      execution('waits')
    ];
    expect(barsOf(executions, RANGE).map(bar => [bar.execution.id, bar.tone, bar.left, bar.width])).toEqual([
      ['now', 'running', 90, 10],
      ['in', 'good', 50, 10],
      ['over the start', 'bad', 0, 10]
    ]);
    expect(laneWords(trans, executions, RANGE)).toBe('3 in this time, 1 failed, 1 running');
  });

  it('names full minutes, a few of them', () => {
    expect(ticksOf(RANGE)).toEqual([10, 8, 6, 4, 2, 0].map(each => NOON - each * MINUTE));
    for (const minutes of [5, 15, 60]) {
      const count = ticksOf({ from: NOON - minutes * MINUTE - 7, to: NOON - 7 }).length;
      expect(count).toBeGreaterThanOrEqual(4);
      expect(count).toBeLessThanOrEqual(6);
    }
  });

  it('is as short as the session is young, and an hour at most', () => {
    const since = (minutes: number): string => new Date(NOON - minutes * MINUTE).toISOString();
    expect([1, 5, 6, 59, 600].map(each => fittingMinutes(since(each), NOON))).toEqual([5, 5, 15, 60, 60]);
  });

  it('never leaves its box', () => {
    expect([-99, 0, 99].map(minutes => percentOf(NOON + minutes * MINUTE, RANGE))).toEqual([0, 100, 100]);
  });
});

describe('a chart', () => {
  const points = [5, 10].map((value, n) => ({ at: NOON - (10 - n) * MINUTE, value }));

  it('has the limit on its scale unless nothing else could be seen then', () => {
    expect(scaleOf(points, 20)).toEqual({ top: 21, withLimit: true });
    expect(scaleOf(points, 1000)).toEqual({ top: 11, withLimit: false });
    expect(scaleOf(points, null)).toEqual({ top: 11, withLimit: false });
    expect(scaleOf([], 4).withLimit).toBe(true);
    expect(scaleOf([], null).top).toBe(1);
  });

  it('draws a line and the area below it', () => {
    expect(pathsOf(points, RANGE, 10)).toEqual({
      line: 'M0.00 50.00L10.00 0.00',
      area: 'M0.00 100L0.00 50.00L10.00 0.00V100Z'
    });
    expect(pathsOf([], RANGE, 10)).toEqual({ line: '', area: '' });
  });

  it('has no line over a time in which nothing was measured', () => {
    const later = [...points, { at: NOON, value: 5 }];
    expect(pathsOf(later, RANGE, 10).line).toBe('M0.00 50.00L10.00 0.00M100.00 50.00h0.2');
  });
});

describe('a preview', () => {
  const shown = (content: BlobPart, type: string) => previewOf(new Blob([content]), type);

  it('shows text as text, whatever its name promises', async () => {
    const page = '<script>alert(1)</script>';
    expect(await shown(page, 'text/html')).toEqual({ kind: 'text', text: page });
    expect(await shown('a,b\n', 'text/csv')).toEqual({ kind: 'text', text: 'a,b\n' });
  });

  it('shows a picture as one', async () => {
    const bytes = new Uint8Array(69_999).fill(255);
    expect(await shown(bytes, 'image/png')).toEqual({
      kind: 'picture',
      data: { 'image/png': '/'.repeat(93_332) }
    });
    expect(await shown('<svg/>', 'image/svg+xml')).toMatchObject({ kind: 'picture' });
    expect(maxPreviewBytes('image/png')).toBeGreaterThan(maxPreviewBytes('text/plain'));
  });

  it('shows nothing of what is neither', async () => {
    expect(await shown(new Uint8Array([255, 254]), 'text/plain')).toEqual({ kind: 'none' });
    expect(await shown('a\0b', 'text/plain')).toEqual({ kind: 'none' });
    expect(await shown(new Uint8Array([255]), 'image/svg+xml')).toEqual({ kind: 'none' });
  });
});
