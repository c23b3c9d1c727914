// A dialog that asks once before something is changed.
import { announce } from "./live.js";
import { html, useEffect, useRef, useState } from "./preact.js";

// Render an open dialog.
// onConfirm(FormData) sends the request and returns {error} or {}; onClose(isDone) is called once.
export function Dialog({ title, action, isDangerous, children, onConfirm, onClose }) {
  const element = useRef(null);
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    element.current.showModal();
  }, []);
  const close = (isDone) => {
    element.current.close();
    onClose(isDone);
  };
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const answer = await onConfirm(new FormData(event.target));
    setBusy(false);
    if (answer.error) {
      setError(answer.error);
      return;
    }
    announce(`${title}: done`);
    close(true);
  };
  const cancel = (event) => {
    event.preventDefault();
    close(false);
  };
  return html`<dialog ref=${element} aria-labelledby="dialog-title" onCancel=${cancel}>
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
      ${error && html`<${ErrorText} error=${error} />`}
      <p class="buttons">
        <button type="button" onClick=${cancel}>Cancel</button>
        <button class=${isDangerous ? "danger" : "primary"} disabled=${isBusy}>${action}</button>
      </p>
    </form>
  </dialog>`;
}

// Render an error of the API with all its reasons.
export function ErrorText({ error }) {
  return html`<div class="error" role="alert">
    <p>${error.title}${error.detail && `: ${error.detail}`}</p>
    ${error.reasons.length > 0 && html`<ul>${error.reasons.map((text) => html`<li>${text}</li>`)}</ul>`}
  </div>`;
}
