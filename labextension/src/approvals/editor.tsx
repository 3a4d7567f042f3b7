/** JupyterLab's own editor, for code that is to be approved. */

import { StateField } from '@codemirror/state';
import { Decoration, type DecorationSet, EditorView } from '@codemirror/view';
import { CodeEditor, type IEditorServices } from '@jupyterlab/codeeditor';
import * as React from 'react';

interface IProps {
  /** The first text; later values are ignored. */
  value: string;
  language: string;
  label: string;
  /** Lines of `value`, from 1, that stand out, with the reasons. */
  marks: ReadonlyMap<number, string>;
  /** Null where there is no editor: a plain field does. */
  services: IEditorServices | null;
  readOnly: boolean;
  onChange: (text: string) => void;
}

export function CodeField(props: IProps): React.ReactElement {
  return props.services === null ? (
    <PlainField {...props} />
  ) : (
    <Editor {...props} services={props.services} />
  );
}

function Editor(props: IProps & { services: IEditorServices }): React.ReactElement {
  const { services, language, label, readOnly } = props;
  const host = React.useRef<HTMLDivElement>(null);
  const editor = React.useRef<CodeEditor.IEditor | null>(null);
  const latest = React.useRef(props);
  latest.current = props;

  React.useEffect(() => {
    if (host.current === null) {
      return undefined;
    }
    const mimeType = services.mimeTypeService.getMimeTypeByLanguage({
      name: language === 'python' ? 'ipython' : language
    });
    const model = new CodeEditor.Model({ mimeType });
    model.sharedModel.setSource(latest.current.value);
    // Else undoing would end with nothing.
    model.sharedModel.clearUndoHistory();
    const made = services.factoryService.newInlineEditor({
      model,
      host: host.current,
      config: { lineNumbers: true, lineWrap: true },
      extensions: [markedLines(latest.current.marks)]
    });
    editor.current = made;
    const node = host.current;
    node.addEventListener('keydown', keepTab, true);
    model.sharedModel.changed.connect(() => latest.current.onChange(model.sharedModel.getSource()));
    return () => {
      editor.current = null;
      node.removeEventListener('keydown', keepTab, true);
      made.dispose();
      model.dispose();
    };
  }, [services, language]);

  React.useEffect(() => {
    editor.current?.setOption('readOnly', readOnly);
  }, [readOnly]);

  React.useEffect(() => {
    const content = host.current?.querySelector('.cm-content');
    content?.setAttribute('aria-label', label);
  }, [label]);

  return <div className="jex-Editor" ref={host} />;
}

/** Lines that stand out, wherever edits move them. */
function markedLines(marks: ReadonlyMap<number, string>): StateField<DecorationSet> {
  return StateField.define<DecorationSet>({
    create: ({ doc }) =>
      Decoration.set(
        [...marks]
          .filter(([line]) => line <= doc.lines)
          .map(([line, why]) =>
            Decoration.line({ class: 'jex-Asks', attributes: { title: why } }).range(doc.line(line).from)
          ),
        true
      ),
    update: (lines, { changes }) => lines.map(changes),
    provide: field => EditorView.decorations.from(field)
  });
}

/** Tab leads on, as everywhere in the panel: somebody who goes through it by keyboard must not edit code on the way. */
function keepTab(event: KeyboardEvent): void {
  if (event.key === 'Tab') {
    event.stopPropagation();
  }
}

function PlainField(props: IProps): React.ReactElement {
  return (
    <textarea
      className="jex-Editor jex-Editor-plain"
      aria-label={props.label}
      defaultValue={props.value}
      readOnly={props.readOnly}
      spellCheck={false}
      rows={Math.min(16, props.value.split('\n').length + 1)}
      onChange={event => props.onChange(event.target.value)}
    />
  );
}
