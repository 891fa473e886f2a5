/*
 * Search from file://, where a browser starts no worker: the worker's script runs in a hidden frame.
 * After @squidfunk/iframe-worker, rewritten from TypeScript.
 *
 * Copyright (c) 2020-2022 Martin Donath <martin.donath@squidfunk.com>
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to
 * deal in the Software without restriction, including without limitation the
 * rights to use, copy, modify, merge, publish, distribute, sublicense, and/or
 * sell copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in
 * all copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NON-INFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING
 * FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
 * IN THE SOFTWARE.
 */
(() => {
  function post(message, origin) {
    parent.postMessage(message, origin || "*");
  }

  function load(...urls) {
    const one = (url) =>
      new Promise((resolve) => {
        const script = document.createElement("script");
        script.src = url;
        script.onload = resolve;
        document.body.appendChild(script);
      });
    return urls.reduce((before, url) => before.then(() => one(url)), Promise.resolve());
  }

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.iframe = document.createElement("iframe");
      this.iframe.hidden = true;
      document.body.appendChild(this.iframe);
      const inside = this.iframe.contentWindow;
      inside.document.open();
      inside.document.write(
        "<html><body><script>postMessage=" + post + ";importScripts=" + load + ";</script>" +
          '<script src="' + String(url).replace(/"/g, "%22") + '"></script></body></html>'
      );
      inside.document.close();
      addEventListener("message", (event) => {
        if (event.source !== inside) return;
        this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        if (this.onmessage) this.onmessage(event);
      });
      this.ready = new Promise((resolve, reject) => {
        inside.onload = resolve;
        inside.onerror = reject;
      });
    }

    terminate() {
      this.iframe.remove();
    }

    postMessage(data) {
      const inside = this.iframe.contentWindow;
      this.ready
        .catch(() => {})
        .then(() => inside.dispatchEvent(new MessageEvent("message", structuredClone({ data }))));
    }
  }

  window.IFrameWorker = IFrameWorker;
  if (location.protocol === "file:") window.Worker = IFrameWorker;
})();
