//! A live session: streams, prompts, requests, forks.

use parlor_testkit::browser::{Key, Tab};
use parlor_testkit::scenario::Scenario;
use parlor_testkit::wait::wait_until;
use rustix::process::{Resource, Rlimit, Signal, kill_process, prlimit};

use crate::{PARLOR, Page};

/// Enters a prompt and sends it.
#[track_caller]
fn prompt(tab: &Tab, text: &str) {
    tab.click("#p");
    tab.enter(text);
    tab.press_key(Key::Enter, 0);
}

/// Whether no turn is running.
const IDLE: &str = "document.getElementById('head').dataset.state === 'idle'";

#[test]
fn streamed_text_grows_in_place_in_two_tabs() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let (first, second) = (page.open_session(&id), page.open_session(&id));
    prompt(&first, "stream 30 10 100\nsay The end.");
    for tab in [&first, &second] {
        tab.wait_for("document.querySelectorAll('#log > .agent').length >= 2");
        tab.eval("document.querySelectorAll('#log > .agent')[1].isSame = true");
        tab.wait_for("document.querySelectorAll('#log > .agent').length === 3");
        tab.wait_for(IDLE);
        assert_eq!(
            tab.eval("document.querySelectorAll('#log > .agent')[1].isSame"),
            true,
            "it is the same element"
        );
    }
    assert_eq!(
        first.eval("document.getElementById('log').innerText"),
        second.eval("document.getElementById('log').innerText")
    );
    assert_eq!(first.errors(), [""; 0]);
}

#[test]
fn a_reload_in_the_middle_of_a_stream_shows_the_message_once_and_whole() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    prompt(&tab, "stream 200 10 100\nsay The end.");
    tab.wait_for("document.querySelectorAll('#log > .agent').length >= 2");
    tab.reload();
    tab.wait_for("document.querySelectorAll('#log > .agent').length === 3");
    tab.wait_for(IDLE);
    let streamed = "document.querySelectorAll('#log > .agent')[1].querySelector('.md').textContent";
    let live = tab.eval(streamed);
    assert!(live.as_str().is_some_and(|text| text.len() >= 2000), "{live}");
    tab.reload();
    assert_eq!(tab.eval(streamed), live, "what was streamed is what is stored");
    assert_eq!(tab.eval("document.querySelectorAll('#log > .agent').length"), 3);
}

#[test]
fn the_page_connects_again_after_a_restart_of_the_server_without_duplicates() {
    let mut page = Page::on_a_fixed_port();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval("window.isSame = true");
    tab.click("#p");
    tab.enter("a draft");
    page.kill();
    tab.wait_for_text("Connection lost.");
    assert!(tab.text().contains("hello"), "the conversation stays");
    page.restart();
    page.run(&["prompt", "-s", &id, "--yes", "say after the restart"]).success();
    tab.wait_for("document.getElementById('offline').hidden");
    tab.wait_for("[...document.querySelectorAll('#log > .agent .md')].some(one => one.textContent.trim() === 'after the restart')");
    assert_eq!(tab.eval("window.isSame"), true, "the page was not loaded again");
    assert_eq!(tab.eval("document.getElementById('p').value"), "a draft");
    let texts = tab.eval(
        "[...document.querySelectorAll('#log > .agent .md')].map(element => element.textContent.trim())",
    );
    assert_eq!(texts, serde_json::json!(["hello", "after the restart"]));
}

#[test]
fn the_session_of_a_subagent_is_shown_without_what_it_does_not_take() {
    let page = Page::of(|| Scenario::new(PARLOR).with_test_agent());
    let script = [
        r#"raw {"update":{"sessionUpdate":"subagent_update","sessionId":"child","title":"Look around","capabilities":{"cancel":{}}}}"#,
        r#"raw {"sessionId":"child","update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a quokka"}}}"#,
        r#"raw {"sessionId":"child","update":{"sessionUpdate":"state_update","state":"running"}}"#,
        r#"raw {"update":{"sessionUpdate":"subagent_update","sessionId":"child","state":{"state":"running"}}}"#,
        "say done",
    ];
    let id = page.new_session(&script.join("\n"));
    let tab = page.open_session(&id);
    tab.wait_for_text("Look around");
    tab.click("#log a[href^='/s/']");
    tab.wait_for_text("a quokka");
    tab.wait_for_text("This is the session of a subagent, which takes no prompts.");
    tab.wait_for("document.querySelector('[data-do=stop]') !== null");
    for absent in ["#p", "[data-do=rename]", "[data-do=delete]", "[data-do=fork]", "[data-act=edit]", ".send"]
    {
        assert_eq!(
            tab.eval(&format!("document.querySelector('{absent}')")),
            serde_json::Value::Null,
            "{absent}"
        );
    }
    // Its owner takes prompts.
    tab.click(".note a");
    tab.wait_for("document.getElementById('p') !== null");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn a_prompt_that_is_sent_without_a_connection_arrives_once() {
    let mut page = Page::on_a_fixed_port();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.resize(1440, 900);
    tab.wait_for("socket?.readyState === 1");
    page.kill();
    tab.wait_for_text("Connection lost.");
    tab.wait_for("document.getElementById('connection').textContent.startsWith('Offline since ')");
    tab.wait_for("document.querySelector('.as-of').innerText.startsWith('as of ')");
    tab.wait_for("document.querySelector('#composer .send').innerText.startsWith('Sends when connected')");
    prompt(&tab, "say from afar");
    tab.wait_for_text("This is sent when the page is connected again.");
    // It survives a reload of another kind: the browser keeps it.
    assert!(tab.eval("localStorage.getItem(outKey)").as_str().is_some_and(|kept| kept.contains("from afar")));
    page.restart();
    tab.wait_for("document.getElementById('connection').textContent === 'Connected'");
    tab.wait_for("[...document.querySelectorAll('#log > .agent .md')].some(one => one.textContent.trim() === 'from afar')");
    tab.wait_for("localStorage.getItem(outKey) === null");
    assert_eq!(page.run(&["show", &id]).success().stdout.matches("say from afar").count(), 1);
    assert_eq!(tab.eval("document.querySelector('.as-of').offsetParent"), serde_json::Value::Null);
}

#[test]
fn an_action_without_a_connection_says_that_it_was_not_sent() {
    let mut page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.press("k");
    page.kill();
    tab.wait_for("!socket");
    for key in ["y", "f", "e", "r"] {
        tab.press(key);
        tab.wait_for_text("The page is not connected; nothing was sent.");
        tab.click(".note.bad button");
        tab.wait_for("!document.querySelector('.note.bad')");
        tab.eval("select(document.querySelector('#log > .agent'))");
    }
    tab.press_key(Key::Period, 2);
    tab.wait_for_text("The page is not connected; nothing was sent.");
}

#[test]
fn a_server_that_does_not_respond_for_a_while_loses_no_prompt() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    kill_process(page.process(), Signal::STOP).unwrap();
    prompt(&tab, "say after the pause");
    // A person can go on writing meanwhile, and looks at the same conversation.
    prompt(&tab, "say and one more");
    assert!(tab.text().contains("hello"));
    kill_process(page.process(), Signal::CONT).unwrap();
    let said = |text: &str| {
        format!(
            "[...document.querySelectorAll('#log > .agent .md')].filter(one => one.textContent.trim() === '{text}').length === 1"
        )
    };
    tab.wait_for(&said("after the pause"));
    tab.wait_for(&said("and one more"));
    tab.wait_for(IDLE);
    assert_eq!(page.run(&["show", &id]).success().stdout.matches("say after the pause").count(), 1);
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn a_full_disk_is_reported_and_the_prompt_comes_back() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let limit = |bytes| {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(page.process()), Resource::Fsize, limit).unwrap();
    };
    limit(Some(512));
    prompt(&tab, "say it cannot be stored");
    tab.wait_for("document.querySelector('.note.bad')?.innerText.includes('stored')");
    assert!(tab.text().contains("hello"), "the conversation stays");
    tab.wait_for("document.getElementById('p').value === 'say it cannot be stored'");
    // The pages themselves are still served.
    let other = page.open_session(&id);
    other.wait_for_text("hello");
    other.close();
    limit(None);
    // After a failed sync, the store tries again only after some time.
    wait_until("the server stores again", || {
        page.scenario.run(&["title", &id, "Stored again"]).code == Some(0)
    });
    tab.wait_for("socket?.readyState === 1");
    tab.click("#p");
    tab.press_key(Key::Enter, 0);
    tab.wait_for("[...document.querySelectorAll('#log > .agent .md')].some(one => one.textContent.trim() === 'it cannot be stored')");
}

#[test]
fn a_draft_survives_a_reload() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.click("#p");
    tab.enter("not sent yet");
    tab.reload();
    assert_eq!(tab.eval("document.getElementById('p').value"), "not sent yet");
}

#[test]
fn a_request_that_one_tab_answers_disappears_in_the_other() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let (first, second) = (page.open_session(&id), page.open_session(&id));
    prompt(&first, "ask Delete the notes");
    for tab in [&first, &second] {
        tab.wait_for("document.querySelector('#request .req')");
        tab.wait_for_text("Delete the notes");
    }
    // A request takes no answer in its first half second.
    second.wait_for("performance.now() - requestSince > 500");
    second.click("#request [data-do=answer]");
    for tab in [&first, &second] {
        tab.wait_for("!document.querySelector('#request .req')");
        tab.wait_for_text("You allowed it this once.");
        tab.wait_for(IDLE);
    }
}

#[test]
fn not_now_leaves_a_request_open() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    prompt(&tab, "ask Delete the notes");
    tab.wait_for("document.querySelector('#request .req')");
    tab.eval("document.activeElement.blur()");
    tab.wait_for("performance.now() - requestSince > 500");
    tab.press("p");
    tab.press_key(Key::Escape, 0);
    tab.wait_for(
        "!document.querySelector('#request .req:not([hidden])') && !document.getElementById('composer').hidden",
    );
    assert_eq!(page.run(&["inbox", "--json"]).success().stdout.matches("requestId").count(), 1);
}

#[test]
fn a_prompt_is_queued_and_withdrawn_and_a_turn_is_stopped() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    prompt(&tab, "sleep 60000");
    tab.wait_for("document.querySelector('[data-do=stop]')");
    prompt(&tab, "say never");
    tab.wait_for("document.querySelector('#queue .queued')");
    tab.click("[data-do=withdraw]");
    tab.wait_for("!document.querySelector('#queue .queued')");
    tab.click("[data-do=stop]");
    tab.wait_for(IDLE);
    tab.wait_for_text("cancelled");
    assert!(!page.run(&["show", &id]).success().stdout.contains("never"));
}

#[test]
fn a_message_is_forked_edited_and_regenerated() {
    let page = Page::new();
    let id = page.new_session("say one");
    page.run(&["prompt", "-s", &id, "--yes", "say two"]).success();
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let path = || tab.eval("location.pathname");
    let original = path();
    // Fork at the first answer.
    tab.eval("select(document.querySelectorAll('#log > .agent')[0])");
    tab.press("f");
    tab.wait_for(&format!("location.pathname !== {original} && document.getElementById('log')"));
    tab.wait_for_text("one");
    assert!(
        !tab.eval("document.getElementById('log').innerText").as_str().unwrap_or_default().contains("two")
    );
    // Edit the second prompt.
    tab.go_to(&page.address(original.as_str().unwrap_or_default()));
    tab.wait_for("socket?.readyState === 1");
    tab.eval("select(document.querySelectorAll('#log > .user')[1])");
    tab.press("e");
    tab.wait_for("document.querySelector('.edit-form textarea')");
    tab.wait_for_text("Sending makes a fork.");
    tab.eval("document.querySelector('.edit-form textarea').select()");
    tab.enter("say three");
    tab.press_key(Key::Enter, 0);
    tab.wait_for(&format!("location.pathname !== {original} && document.getElementById('log')"));
    tab.wait_for(
        "[...document.querySelectorAll('#log > .agent')].some(one => one.innerText.includes('three'))",
    );
    assert!(
        !tab.eval("document.getElementById('log').innerText").as_str().unwrap_or_default().contains("two")
    );
    // Regenerate the last answer.
    tab.go_to(&page.address(original.as_str().unwrap_or_default()));
    tab.wait_for("socket?.readyState === 1");
    tab.press("r");
    tab.wait_for(&format!("location.pathname !== {original} && document.getElementById('log')"));
    tab.wait_for("document.querySelectorAll('#log > .agent').length === 2");
    assert!(page.run(&["show", &id]).success().stdout.contains("two"), "the original stays as it is");
}

#[test]
fn what_a_person_writes_survives_a_reload() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open("/new");
    tab.click("#fp");
    tab.enter("a first prompt");
    tab.reload();
    assert_eq!(tab.eval("document.getElementById('fp').value"), "a first prompt");
    assert_eq!(tab.eval("document.querySelector('.start [name=agent]:checked').value"), "demo");
    tab.go_to(&page.address(&format!("/s/{id}")));
    let edit = || {
        tab.wait_for("socket?.readyState === 1");
        tab.eval("select(document.querySelector('#log > .user'))");
        tab.press("e");
        tab.wait_for("document.querySelector('.edit-form')");
    };
    edit();
    tab.enter(" again");
    tab.reload();
    edit();
    assert_eq!(tab.eval("document.querySelector('.edit-form textarea').value"), "say hello again");
    tab.press_key(Key::Escape, 0);
    edit();
    assert_eq!(tab.eval("document.querySelector('.edit-form textarea').value"), "say hello");
    tab.press_key(Key::Escape, 0);
    // The values of a form.
    prompt(&tab, "elicit");
    let field = "#request form input:not([type=radio]):not([type=checkbox])";
    tab.wait_for("document.querySelector('#request form')");
    tab.click(field);
    tab.enter("Ada");
    tab.reload();
    tab.wait_for(&format!("document.querySelector('{field}')?.value === 'Ada'"));
}

#[test]
fn a_prompt_that_is_sent_after_a_reload_has_its_files() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let file = page.work().join("notes.txt");
    std::fs::write(&file, "the notes").unwrap();
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.choose_files("#files", &[&file]);
    tab.wait_for("document.querySelector('#attached .chip')");
    // The connection is lost at this moment.
    tab.eval("send = () => false");
    prompt(&tab, "say with files");
    tab.wait_for("outbox().length === 1");
    tab.eval("(async () => { while (!await keptFiles('readonly', kept => kept.count())) await new Promise(requestAnimationFrame); })()");
    tab.reload();
    tab.wait_for(
        "[...document.querySelectorAll('#log > .user')].some(one => one.textContent.includes('notes.txt'))",
    );
    tab.wait_for("outbox().length === 0");
    tab.eval("(async () => { while (await keptFiles('readonly', kept => kept.count())) await new Promise(requestAnimationFrame); })()");
}

#[test]
fn a_prompt_is_not_sent_again_after_the_server_has_it() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval("window.sent = []; window.send = message => { sent.push(message.do); return true; }");
    let lost = "document.querySelector('.note.bad')";
    // The outbox is emptied while the files are read.
    tab.eval("files.set('k', [{ name: 'a.txt' }]); outbox([{ key: 'k', text: 'x', now: false, fileCount: 1, tab: tabId }])");
    tab.eval("(async () => { const sending = resend(false); outbox([]); await sending; })()");
    assert_eq!(tab.eval("sent"), serde_json::json!([]));
    // The files of another tab are its own.
    tab.eval(
        "outbox([{ key: 'other', text: 'x', now: false, fileCount: 1, tab: 'another tab' }]); resend(false)",
    );
    assert_eq!(tab.eval(&format!("outbox().length === 1 && !{lost}")), true);
    tab.eval("resend(true)");
    assert_eq!(tab.eval(&format!("outbox().length === 0 && {lost}.innerText.includes('are lost')")), true);
}

#[test]
fn an_open_list_stays_open_while_the_use_of_the_context_changes() {
    let page = Page::new();
    let id = page.new_session("usage\nsay hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1 && document.querySelector('#composer-bar .ctx-m')");
    tab.eval("window.list = document.querySelector('#composer-bar select')");
    tab.eval(
        "patches.replace({ id: 'composer-bar', html: document.getElementById('composer-bar').outerHTML.replace(/\\d+ %/, '99 %') })",
    );
    assert_eq!(tab.eval("document.querySelector('#composer-bar .ctx-m').textContent.trim()"), "99 %");
    assert_eq!(tab.eval("window.list.isConnected"), true);
}

#[test]
fn an_edited_prompt_keeps_what_is_attached_to_it() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let (kept, dropped) = (page.work().join("kept.txt"), page.work().join("dropped.svg"));
    std::fs::write(&kept, "kept").unwrap();
    std::fs::write(&dropped, "<svg/>").unwrap();
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.choose_files("#files", &[&kept, &dropped]);
    tab.wait_for("document.querySelectorAll('#attached .chip').length === 2");
    prompt(&tab, "say with files");
    tab.wait_for("document.querySelector('#log > .user:nth-child(3)') && document.querySelectorAll('#log > .agent').length === 2");
    tab.wait_for(IDLE);
    tab.eval("select([...log.querySelectorAll(':scope > .user')].at(-1))");
    tab.press("e");
    let names = "[...document.querySelectorAll('.edit-form .chip')].map(chip => chip.firstChild.data)";
    tab.wait_for(&format!("{names}.length === 2"));
    assert_eq!(tab.eval(names), serde_json::json!(["kept.txt", "dropped.svg"]));
    tab.click(".edit-form .chip:last-child button");
    // Also after a reload.
    tab.reload();
    tab.wait_for("socket?.readyState === 1 && [...log.querySelectorAll(':scope > .user')].at(-1)");
    tab.eval("select([...log.querySelectorAll(':scope > .user')].at(-1))");
    tab.press("e");
    tab.wait_for("document.querySelector('.edit-form')");
    assert_eq!(tab.eval(names), serde_json::json!(["kept.txt"]));
    tab.eval("document.querySelector('.edit-form textarea').select()");
    tab.enter("say another");
    let original = tab.eval("location.pathname");
    tab.press_key(Key::Enter, 0);
    tab.wait_for(&format!("location.pathname !== {original} && document.getElementById('log')"));
    tab.wait_for(
        "[...document.querySelectorAll('#log > .user')].at(-1)?.textContent.includes('say another')",
    );
    let sent = tab.eval("[...document.querySelectorAll('#log > .user')].at(-1).textContent");
    let sent = sent.as_str().unwrap();
    assert!(sent.contains("kept.txt") && !sent.contains("dropped.svg"), "{sent}");
}

#[test]
fn a_person_who_reads_older_entries_stays_there_when_the_server_is_started_again() {
    let mut page = Page::on_a_fixed_port();
    let id = page.new_session(&"stream 1 40\n".repeat(900));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval("(() => { const real = onPage; onPage = (...page) => { real(...page); view.scrollTop = 400; }; window.stop = () => onPage = real; view.scrollTop = 400; })()");
    tab.wait_for("below.length > 1");
    tab.eval("stop()");
    tab.eval("document.getElementById('conversation').scrollTop = 3000");
    tab.wait_for("awaited === null");
    let place = "(() => { const top = view.getBoundingClientRect().top; \
         const entry = [...log.children].find(one => one.getBoundingClientRect().bottom > top); \
         return [entry.id, Math.round(entry.getBoundingClientRect().top)]; })()";
    let before = tab.eval(place);
    tab.eval("window.epoch = log.dataset.epoch");
    page.kill();
    tab.wait_for("!socket");
    page.restart();
    tab.wait_for("log.dataset.epoch !== window.epoch && place === null && awaited === null");
    assert_eq!(tab.eval(place), before);
    // Both ends are reached from there.
    tab.eval("setInterval(() => { view.scrollTop = window.isBack ? 0 : view.scrollHeight; }, 20)");
    tab.wait_for("below.length === 0 && following()");
    let newest = tab.eval("document.querySelector('#log > :last-child .who a').textContent");
    assert_eq!(newest, "#901");
    tab.eval("window.isBack = true");
    tab.wait_for("!log.dataset.before");
    assert_eq!(tab.eval("document.querySelector('#log > .entry .who a').textContent"), "#1");
}

/// What a person reads: the first visible entry, and where it is.
const PLACE: &str = "(() => { const top = view.getBoundingClientRect().top; \
     const entry = [...log.children].find(one => one.getBoundingClientRect().bottom > top); \
     return [entry.id, Math.round(entry.getBoundingClientRect().top)]; })()";

#[test]
fn a_person_who_reads_the_latest_entries_stays_there_when_the_server_is_started_again() {
    let mut page = Page::on_a_fixed_port();
    let id = page.new_session(&"stream 1 40\n".repeat(300));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    // More entries than the latest ones are shown.
    page.run(&["prompt", "-s", &id, &"stream 1 40\n".repeat(100)]).success();
    tab.wait_for(&format!("log.children.length > 180 && {IDLE}"));
    assert_eq!(tab.eval("log.dataset.before.slice(0, 2)"), "e:");
    tab.eval("view.scrollTop = view.scrollHeight - view.clientHeight - 300");
    let before = tab.eval(PLACE);
    tab.eval("window.epoch = log.dataset.epoch");
    page.kill();
    tab.wait_for("!socket");
    page.restart();
    tab.wait_for("log.dataset.epoch !== window.epoch && awaited === null");
    assert_eq!(tab.eval("document.querySelector('.note') === null && below.length === 0"), true);
    assert_eq!(tab.eval(PLACE), before);
    // The view goes on.
    prompt(&tab, "say after the restart");
    tab.wait_for(
        "[...document.querySelectorAll('#log > .agent')].at(-1).textContent.includes('after the restart')",
    );
}

#[test]
fn a_page_that_never_arrives_does_not_stop_the_conversation() {
    let page = Page::new();
    let id = page.new_session(&"stream 1 40\n".repeat(300));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    // The person reads an entry that is not among the latest.
    tab.eval("document.getElementById('conversation').scrollTop = 400");
    tab.wait_for("log.children.length > 150 && awaited === null");
    tab.eval("view.scrollTop = 2000; awaited = 'nothing more'");
    // The connection is lost between the latest entries and the page.
    let tail = "const fresh = document.createElement('div'); fresh.append(log.lastElementChild.cloneNode(true)); fresh.firstElementChild.id = 'm-new'";
    tab.eval(&format!("(() => {{ {tail}; window.asked = []; const real = send; send = message => {{ asked.push(message.do); return true; }}; \
         patches.tail({{ epoch: log.dataset.epoch, html: fresh.innerHTML, before: 'e:' + fresh.firstElementChild.id }}); send = real; }})()"));
    assert_eq!(tab.eval("asked"), serde_json::json!(["find"]));
    // What else the server says leaves the request as it is.
    tab.eval("patches.note('Something else'); patches.error('Another thing')");
    assert_eq!(tab.eval("awaited"), "find");
    tab.eval("socket.close()");
    tab.wait_for("!socket && awaited === null && place === null");
    tab.wait_for("socket?.readyState === 1");
    tab.wait_for("!document.querySelector('.latest').hidden");
    tab.click(".latest");
    tab.wait_for("below.length === 0 && following()");
    // An entry that the server does not have: the latest ones are shown.
    tab.eval("document.getElementById('conversation').scrollTop = 400");
    tab.wait_for("log.children.length > 150 && awaited === null");
    tab.eval("view.scrollTop = 2000; below = ['']; awaited = 'nothing more'; find('m-missing'); place = { id: 'm-missing', top: 0 }");
    tab.wait_for("below.length === 0 && following() && awaited === null");
    assert_eq!(tab.eval("document.querySelector('.note')?.textContent.includes('link') ?? false"), false);
}

#[test]
fn only_the_first_connection_goes_to_the_entry_of_a_link() {
    let page = Page::new();
    let id = page.new_session(&"stream 1 40\n".repeat(300));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let first = tab.eval("document.querySelector('#log > .entry').id");
    let tab = page.open(&format!("/s/{id}#{}", first.as_str().unwrap()));
    tab.wait_for("socket?.readyState === 1 && awaited === null");
    // The entry is trimmed, and the connection is lost.
    tab.eval("(() => { window.asked = []; const real = send; send = message => { asked.push(message.do); return real(message); }; \
         removeEntry(document.getElementById(location.hash.slice(1))); socket.close(); })()");
    tab.wait_for("asked.includes('seen') && socket?.readyState === 1");
    assert_eq!(tab.eval("asked.includes('find')"), false);
    // A person who goes to the end stays there, also if a page was requested.
    tab.eval("(() => { send = () => true; find('m-other'); local.to_end(); })()");
    assert_eq!(tab.eval("awaited"), serde_json::Value::Null);
}

#[test]
fn a_form_is_filled_in() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    prompt(&tab, "elicit");
    tab.wait_for("document.querySelector('#request form')");
    tab.wait_for("performance.now() - requestSince > 500");
    tab.click("#request form input:not([type=radio]):not([type=checkbox])");
    tab.enter("Ada");
    tab.press_key(Key::Enter, 0);
    tab.wait_for_text("Ada");
    tab.wait_for("!document.querySelector('#request .req')");
    tab.wait_for(IDLE);
}

#[test]
fn older_entries_are_loaded_without_a_jump_and_the_document_is_bounded() {
    let page = Page::new();
    let id = page.new_session(&"stream 1 40\n".repeat(900));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let newest = tab.eval("document.querySelector('#log > :last-child').id");
    // The actions are at a message that will be removed from the document.
    tab.eval("select(document.querySelector('#log > .agent:last-child'))");
    for _ in 0..40 {
        let first = tab.eval("document.querySelector('#log > .entry').id");
        tab.eval("document.getElementById('conversation').scrollTop = 400");
        let place = format!("document.getElementById({first})?.getBoundingClientRect().top");
        let before = tab.eval(&place);
        tab.wait_for(&format!("document.querySelector('#log > .entry').id !== {first} || !document.getElementById('log').dataset.before"));
        let after = tab.eval(&place);
        if let (Some(before), Some(after)) = (before.as_f64(), after.as_f64()) {
            assert!((before - after).abs() < 2.0, "what is shown stays in place: {before} and {after}");
        }
        assert!(tab.eval("document.getElementById('log').children.length").as_u64() <= Some(600));
        if tab.eval("document.getElementById('log').dataset.before ?? null").is_null() {
            break;
        }
    }
    assert_eq!(
        tab.eval("document.getElementById('log').dataset.before ?? null"),
        serde_json::Value::Null,
        "the first entry was reached"
    );
    assert_eq!(tab.eval("['acts', 'message-menu'].every(id => document.getElementById(id))"), true);
    tab.click("[data-do=to_end]");
    tab.wait_for(&format!("document.querySelector('#log > :last-child').id === {newest}"));
}

#[test]
fn older_entries_are_requested_while_the_view_stays_at_its_top() {
    let page = Page::new();
    let id = page.new_session(&"stream 1 40\n".repeat(900));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    // Goes back in the frame that moved the view, which is no scroll: the browser saw it in one place only.
    tab.eval("(() => { const real = onPage; onPage = (...page) => { real(...page); view.scrollTop = 400; }; view.scrollTop = 400; })()");
    tab.wait_for("!document.getElementById('log').dataset.before");
}

#[test]
fn an_observer_sees_a_session_and_cannot_act() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let link = page.run(&["open", "--print", "--observe"]).success().stdout.trim().to_owned();
    let other = parlor_testkit::browser::Browser::start();
    other.open(&link).close();
    let tab = other.open(&page.address(&format!("/s/{id}")));
    tab.wait_for_text("hello");
    tab.wait_for_text("You watch this session");
    tab.wait_for("socket?.readyState === 1");
    tab.eval("send({ do: 'prompt', key: 'k', text: 'say evil' })");
    tab.wait_for("document.getElementById('note').textContent");
    assert!(!page.run(&["show", &id]).success().stdout.contains("evil"));
}

#[test]
fn files_are_attached_by_drop_paste_and_picker() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let file = page.work().join("notes.txt");
    std::fs::write(&file, "the text of the notes").unwrap();
    page.browser
        .allow(page.address("").trim_end_matches('/'), &["clipboardReadWrite", "clipboardSanitizedWrite"]);
    for path in [format!("/s/{id}"), "/new".to_owned()] {
        let tab = page.open(&path);
        tab.wait_for("socket?.readyState === 1");
        tab.drop_files("#main", &[&file]);
        tab.wait_for("document.querySelector('#attached .chip')?.textContent.startsWith('notes.txt')");
        tab.click(if path == "/new" { "#fp" } else { "#p" });
        tab.eval(
            "(async () => { const canvas = document.createElement('canvas'); canvas.width = canvas.height = 2; \
             const image = await new Promise(done => canvas.toBlob(done, 'image/png')); \
             await navigator.clipboard.write([new ClipboardItem({ 'image/png': image })]); })()",
        );
        tab.paste();
        tab.wait_for("document.querySelectorAll('#attached .chip').length === 2");
        // The first one is removed again.
        tab.click("#attached .chip button");
        tab.wait_for("document.querySelectorAll('#attached .chip').length === 1");
        tab.choose_files("#files", &[&file]);
        tab.wait_for("document.querySelectorAll('#attached .chip').length === 2");
        tab.click(if path == "/new" { "#fp" } else { "#p" });
        tab.enter("say with files");
        tab.press_key(Key::Enter, 0);
        tab.wait_for("location.pathname.startsWith('/s/') && [...document.querySelectorAll('#log > .user')].some(one => one.querySelector('img') && one.textContent.includes('notes.txt'))");
        tab.wait_for("!document.querySelector('#attached .chip')");
        tab.close();
    }
}

#[test]
fn open_tool_calls_do_not_cover_the_button_to_the_latest_entries() {
    let page = Page::new();
    let id = page.new_session(&"terminal seq 30\n".repeat(12));
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval("for (const call of log.querySelectorAll('details.tool')) call.open = true");
    // The summary of an open call is below the button.
    tab.eval(
        "(() => { const below = document.getElementById('conversation').getBoundingClientRect().bottom - 20; \
         const summary = log.querySelectorAll('.tool > summary')[6].getBoundingClientRect(); \
         view.scrollTop += summary.top + summary.height / 2 - below; })()",
    );
    tab.wait_for("!document.querySelector('.latest').hidden");
    tab.click("[data-do=to_end]");
    tab.wait_for("following()");
}

#[test]
fn a_request_notifies_a_person_who_looks_at_another_page() {
    let page = Page::new();
    let id = page.new_session("title The title\nsay hello");
    page.browser.allow(page.address("").trim_end_matches('/'), &["notifications"]);
    let tab = page.open("/inbox");
    tab.wait_for("socket?.readyState === 1");
    tab.click("#notifications");
    tab.wait_for("document.getElementById('notifications').textContent === 'Turn off notifications'");
    tab.click("#notifications");
    tab.wait_for("document.getElementById('notifications').textContent === 'Turn on notifications'");
    assert_eq!(tab.eval("store(localStorage, 'notify')"), serde_json::Value::Null);
    tab.click("#notifications");
    tab.wait_for("document.getElementById('notifications').textContent === 'Turn off notifications'");
    tab.eval(
        "window.shown = []; const Real = Notification; \
         window.Notification = class extends Real { constructor(title, options) { super(title, options); \
           this.onshow = () => shown.push(`${title}: ${options.body}`); this.onerror = () => shown.push('error'); } }; \
         Object.defineProperty(document, 'hidden', { configurable: true, value: false })",
    );
    // Nothing while the person sees the page.
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    tab.wait_for("document.querySelector('#inbox .req')");
    assert_eq!(tab.eval("window.shown"), serde_json::json!([]));
    tab.eval("Object.defineProperty(document, 'hidden', { configurable: true, value: true })");
    let other = page.new_session("title Another\nsay hello");
    page.run(&["prompt", "-s", &other, "--no-wait", "ask Delete the build"]).success();
    tab.wait_for(
        "window.shown.some(text => text.includes('Another: ') && text.includes('Delete the build'))",
    );
    tab.eval("store(localStorage, 'notify', null)");
    assert!(!tab.eval("window.shown").to_string().contains("error"));
}

#[test]
fn a_turn_ends_with_the_files_that_it_changed_and_diffs_can_be_side_by_side() {
    let page = Page::new();
    let id = page.new_session("tool Edit the notes\nsay Done.");
    let tab = page.open_session(&id);
    tab.resize(1600, 900);
    tab.wait_for("document.querySelector('#log > .agent:last-child > .changed')");
    assert_eq!(
        tab.eval("document.querySelector('.changed summary').textContent.trim().slice(0, 14)"),
        "1 file changed"
    );
    // A live turn gets its summary when it has ended.
    prompt(&tab, "tool Edit the notes\nsleep 300\nsay Again.");
    tab.wait_for(IDLE);
    tab.wait_for("document.querySelectorAll('#log > .agent > .changed').length === 2");
    tab.click(".changed summary");
    tab.click(".changed a");
    tab.wait_for("document.querySelector('#log .tool').open");
    tab.click("#log .layout");
    tab.wait_for("document.querySelector('#log .layout').getAttribute('aria-pressed') === 'true'");
    let sides = tab.eval(
        "(() => { const cell = kind => document.querySelector(`#log .chg .${kind} > td:nth-child(3)`)?.getBoundingClientRect(); \
         const [old, now] = [cell('del'), cell('add')]; return [old.top === now.top, old.right <= now.left]; })()",
    );
    assert_eq!(sides, serde_json::json!([true, true]), "the old line is beside the new one");
    tab.reload();
    assert_eq!(tab.eval("document.documentElement.dataset.diff"), "split");
    // Times are beside all entries.
    let times = tab.eval(
        "[...document.querySelectorAll('#log > li')].every(entry => entry.querySelector('time[title]'))",
    );
    assert_eq!(times, true);
}
