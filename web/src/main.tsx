// The page: unpacks its data and puts the views under each other, of a run or, where the data are of `load`, of
// measurements. A view that fails says so and leaves the others alone.
import { Component, render, type ComponentChildren } from "preact";
import { has, json, load } from "./data";
import { LoadPage } from "./load/page";
import { LoadStore } from "./load/store";
import type { LoadData } from "./load/types";
import { Store } from "./store";
import { TopBar } from "./views/bar";
import { Balloon } from "./views/balloon";
import { Boxes } from "./views/boxes";
import { Causes, Groups } from "./views/causes";
import { Compare } from "./views/compare";
import { Distribution } from "./views/distribution";
import { Functions } from "./views/functions";
import { MessageView } from "./views/message";
import { Facts, Header, Notes, Overview, Requests, Settings, Typical } from "./views/overview";
import { Cores, Pervasive, Queueing } from "./views/queue";
import { Question } from "./views/question";
import { Recording } from "./views/recording";
import "../../crates/tailsight-report/src/html/page.css";
import "./views.css";

class Guard extends Component<{ children: ComponentChildren }, { error: string }> {
  state = { error: "" };
  static getDerivedStateFromError(error: Error) {
    return { error: error.message || String(error) };
  }
  componentDidCatch(error: Error) {
    console.error(error);
  }
  render() {
    return this.state.error ? (
      <p class="note">{"This part could not be drawn: " + this.state.error}</p>
    ) : (
      this.props.children
    );
  }
}

function Page({ store }: { store: Store }) {
  const { page } = store.data,
    diagnosis = page.diagnosis,
    views = [
      Causes,
      Overview,
      Notes,
      Balloon,
      Boxes,
      MessageView,
      Compare,
      Distribution,
      Typical,
      Groups,
      Requests,
      Functions,
      Pervasive,
      Queueing,
      Cores,
      Settings,
      Recording,
      Facts,
    ];
  const present = (id: string) =>
    id === "queue"
      ? Boolean(diagnosis.more?.queue.length)
      : id === "compare"
        ? Boolean(page.against)
        : id === "boxes"
          ? store.data.focus.length > 0 && diagnosis.causes.length > 0
          : true;
  return (
    <>
      <a
        class="skip"
        href="#causes"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById("causes-title")?.scrollIntoView();
        }}
      >
        Skip to the causes
      </a>
      <Guard>
        <Header store={store} />
      </Guard>
      {page.served ? (
        <Guard>
          <Question store={store} />
        </Guard>
      ) : null}
      <Guard>
        <TopBar store={store} present={present} />
      </Guard>
      <main>
        {views.map((View) => (
          <Guard>
            <View store={store} />
          </Guard>
        ))}
      </main>
      <footer id="footer">
        {"Tailsight " +
          page.meta.tailsight +
          " · run " +
          diagnosis.run +
          " · " +
          (page.served ? "served by tailsight view" : "one file, nothing is loaded from anywhere") +
          ". Times are CLOCK_MONOTONIC; every nanosecond of a message has one owner."}
      </footer>
      <p class="live" id="live" aria-live="polite" />
    </>
  );
}

/** What is drawn: the title and the views. */
async function content(): Promise<[string, ComponentChildren]> {
  if (has("load")) {
    const data = await json<LoadData>("load"),
      target = data.results[0]?.report.target ?? data.sweep?.target ?? "";
    return [
      target + ": Tailsight " + (data.sweep ? "sweep" : "measurement"),
      <Guard>
        <LoadPage store={new LoadStore(data)} />
      </Guard>,
    ];
  }
  const data = await load();
  return [data.page.diagnosis.app + ": Tailsight report", <Page store={new Store(data)} />];
}

content()
  .then(([title, views]) => {
    document.title = title;
    render(views, document.getElementById("page")!);
    // Two frames later the plots are on the screen.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        document.documentElement.dataset.drawn = String(Math.round(performance.now()));
      }),
    );
  })
  .catch((error: Error) => {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = "This page could not be drawn: " + error.message;
    document.getElementById("page")!.append(note);
    document.documentElement.dataset.drawn = "failed";
    console.error(error);
  });
