// Reads server-sent events from the text of a response (WHATWG HTML, 9.2.6). The map uses fetch, because EventSource
// cannot send an Authorization header.

export interface ServerEvent {
  event: string;
  data: string;
  /** Last `id:` so far; "" = none. */
  id: string;
}

/** Takes text in pieces of any size. Comments and events without data are dropped, as the standard says. */
export class EventReader {
  private parts: string[] = [];
  private event = "";
  private data: string[] = [];
  private id = "";

  *read(text: string): Generator<ServerEvent> {
    // Pieces are joined at the end of a line: a snapshot is one line of megabytes in hundreds of pieces.
    let from = 0;
    for (;;) {
      const end = text.indexOf("\n", from);
      if (end < 0) break;
      this.parts.push(text.slice(from, end));
      let line = this.parts.length === 1 ? (this.parts[0] as string) : this.parts.join("");
      this.parts = [];
      if (line.endsWith("\r")) line = line.slice(0, -1);
      from = end + 1;
      if (line !== "") {
        this.field(line);
        continue;
      }
      if (this.data.length > 0) {
        yield { event: this.event || "message", data: this.data.join("\n"), id: this.id };
      }
      this.event = "";
      this.data = [];
    }
    if (from < text.length) this.parts.push(text.slice(from));
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
  }
}
