//! Requests of agents: what they show, when they can be answered, and where else they are shown.

use parlor_client::{Notification, RequestsUpdate};
use parlor_json::Json;
use parlor_testkit::browser::{Browser, Key, Tab};
use parlor_testkit::wait::wait_until;
use parlor_web::render::{CardPlace, RequestCard};
use serde_json::json;

use crate::Page;

/// Shows a request in place of the composer, as the server renders it.
fn show(tab: &Tab, params: &serde_json::Value) {
    let request = json!({ "opened": [{
        "requestId": "r1", "sessionId": "s", "agent": "demo", "cwd": "/srv/a directory/project", "title": "A title",
        "openedAt": "2026-03-04T09:41:00Z", "method": "session/request_permission", "params": params
    }] });
    let request = Json::parse(request.to_string()).unwrap();
    let update = RequestsUpdate::of(&Notification::new("_parlor/requests/update", Some(request))).unwrap();
    let card = RequestCard::new(&update.opened[0]).html(CardPlace::Inbox).into_string();
    let html = json!(format!("<div id=\"request\">{card}</div>"));
    // The server knows nothing of it.
    tab.eval("socket.onmessage = null");
    tab.eval(&format!("patches.replace({{ id: 'request', html: {html} }})"));
}

/// A permission for a command and for changes of files.
fn permission(command: &str, files: &[(&str, &str)]) -> serde_json::Value {
    let diffs: Vec<_> = files
        .iter()
        .map(|(path, text)| json!({ "type": "diff", "path": path, "oldText": "a\n", "newText": text }))
        .collect();
    json!({
        "toolCall": { "toolCallId": "t", "title": "Run it", "kind": "execute", "rawInput": { "command": command }, "content": diffs },
        "options": [{ "optionId": "a", "name": "Allow once", "kind": "allow_once" }, { "optionId": "r", "name": "Reject", "kind": "reject_once" }]
    })
}

#[test]
fn a_command_is_never_cut_or_broken_inside_a_word_and_its_diff_needs_no_sideways_scrolling() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    let command = "cargo add windows-sys --target 'cfg(windows)' --features Win32_Storage_FileSystem && \
                   cargo check --workspace --all-targets --target x86_64-pc-windows-gnu";
    let line = format!("let long = \"{}\";\n", "a text that is wider than any phone ".repeat(12));
    show(
        &tab,
        &permission(
            command,
            &[("src/one.rs", &line), ("a/very/long/path/of/a/file/that/is/changed/two.rs", "b\n")],
        ),
    );
    for (width, height) in [(360, 640), (390, 844), (1024, 768), (1440, 900), (3840, 2160)] {
        tab.resize(width, height);
        let at = format!("{width} × {height}");
        let words = tab.eval(
            "[...document.querySelectorAll('#request .cmd span')].map(word => word.getClientRects().length)",
        );
        assert!(
            words.as_array().unwrap().iter().all(|lines| *lines == 1),
            "words on one line each at {at}: {words}"
        );
        let text = tab.eval("document.querySelector('#request .cmd').textContent");
        assert_eq!(text, command, "the command is whole");
        let cut = tab.eval(
            "[...document.querySelectorAll('#request .cmd, #request .cmd span, #request .diffbox, #request .req > .scroll')] \
             .filter(it => it.scrollWidth > it.clientWidth + 1 && it.clientWidth > 0 || getComputedStyle(it).textOverflow === 'ellipsis') \
             .map(it => `${it.className} ${it.scrollWidth} ${it.clientWidth}`)",
        );
        assert_eq!(cut, json!([]), "nothing is cut at {at}");
        assert!(
            tab.eval("document.querySelector('#request .part > header').textContent")
                == "Command, in /srv/a directory/project",
            "the directory is shown at {at}"
        );
        // All of it can be reached by scrolling down.
        let last = tab.eval(
            "(() => { const box = document.querySelector('#request .req > .scroll'); box.scrollTop = box.scrollHeight; readRest(); \
             return box.querySelector('.rest').textContent; })()",
        );
        assert_eq!(last, "End of the request: 1 command, 2 files", "{at}");
    }
}

#[test]
fn a_long_request_says_that_there_is_more_below() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    show(&tab, &permission("make", &[("a.txt", &"line\n".repeat(300))]));
    let rest = "document.querySelector('#request .rest').textContent";
    tab.wait_for(&format!("{rest} === 'More below'"));
    tab.eval("(() => { const box = document.querySelector('#request .req > .scroll'); box.scrollTop = box.scrollHeight; })()");
    tab.wait_for(&format!("{rest}.startsWith('End of the request')"));
}

/// Whether a part of a card is hidden and its last line says so; `null` if the card has another line.
const SAYS_MORE: &str = "(() => { const rest = document.querySelector('.req .rest'), box = rest.parentElement; \
     const isHidden = box.scrollHeight - box.scrollTop - box.clientHeight >= 4; \
     return isHidden === (rest.textContent === 'More below') ? isHidden : null; })()";

#[test]
fn a_request_whose_end_becomes_hidden_says_that_there_is_more_below() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.resize(1200, 900);
    show(&tab, &permission("make", &[("a.txt", &"line\n".repeat(8))]));
    tab.wait_for(&format!("{SAYS_MORE} === false"));
    tab.resize(1200, 400);
    tab.wait_for(&format!("{SAYS_MORE} === true"));
    tab.resize(1200, 900);
    tab.wait_for(&format!("{SAYS_MORE} === false"));
    // A part that grows.
    tab.eval("(() => { const part = document.querySelector('.req .part'); part.append(...Array.from({ length: 60 }, () => document.createElement('br'))); })()");
    tab.wait_for(&format!("{SAYS_MORE} === true"));
    // A page that is loaded.
    page.run(&["prompt", "-s", &id, "--no-wait", "elicit"]).success();
    wait_until("the request waits", || page.run(&["inbox", "--json"]).stdout.contains("requestId"));
    let tab = page.browser.open("about:blank");
    tab.resize(390, 120);
    tab.go_to(&page.address("/inbox"));
    tab.wait_for(&format!("{SAYS_MORE} === true"));
    tab.resize(1200, 900);
    tab.reload();
    tab.wait_for(&format!("{SAYS_MORE} === false"));
}

#[test]
fn keys_act_on_the_current_request_of_the_inbox() {
    let page = Page::new();
    let first = page.new_session("say hello");
    page.run(&["prompt", "-s", &first, "--no-wait", "ask Delete the notes"]).success();
    wait_until("the first waits", || page.run(&["inbox", "--json"]).stdout.contains("Delete the notes"));
    let second = page.new_session("say hello");
    page.run(&["prompt", "-s", &second, "--no-wait", "ask Delete the build"]).success();
    wait_until("both wait", || page.run(&["inbox", "--json"]).stdout.contains("Delete the build"));
    let tab = page.open("/inbox");
    tab.wait_for("socket?.readyState === 1 && document.querySelectorAll('#inbox .item').length === 2");
    tab.wait_for("document.getElementById('conversation').dataset.moved === undefined");
    tab.press("1");
    tab.wait_for("document.querySelectorAll('#inbox .item').length === 1");
    tab.wait_for_text("Delete the build");
    // The card that takes its place accepts no key at first.
    tab.press("1");
    tab.wait_for("document.getElementById('conversation').dataset.moved === undefined");
    assert_eq!(tab.eval("document.querySelectorAll('#inbox .item').length"), 1);
    tab.press_key(Key::Escape, 0);
    tab.wait_for("document.querySelector('#inbox details.tool[data-s=you]')");
}

#[test]
fn keys_act_on_the_request_that_a_person_reads_while_the_inbox_changes() {
    let page = Page::new();
    for what in ["one", "two", "three"] {
        let id = page.new_session("say hello");
        page.run(&["prompt", "-s", &id, "--no-wait", &format!("ask Delete {what}")]).success();
        wait_until("it waits", || page.run(&["inbox", "--json"]).stdout.contains(&format!("Delete {what}")));
    }
    let tab = page.open("/inbox");
    tab.wait_for("socket?.readyState === 1 && document.querySelectorAll('#inbox .item').length === 3");
    tab.wait_for("document.getElementById('conversation').dataset.moved === undefined");
    // The server renders the inbox again, with another text.
    let change = "window.render = async (edit) => { \
         const text = await (await fetch('/inbox')).text(), all = new DOMParser().parseFromString(text, 'text/html'); \
         const inbox = all.getElementById('inbox'); edit(inbox); patches.replace({ id: 'inbox', html: inbox.outerHTML }); }";
    tab.eval(change);
    let current = "[...document.querySelectorAll('#inbox .item')].findIndex(one => one.matches('.cur'))";
    let focused = "[...document.querySelectorAll('#inbox .item')].findIndex(one => one.contains(document.activeElement))";
    for part in ["div.scroll", ".opts [data-do=answer]:nth-of-type(2)"] {
        tab.eval(&format!("document.querySelector('#inbox .item:last-of-type {part}').focus()"));
        assert_eq!((tab.eval(current), tab.eval(focused)), (2.into(), 2.into()), "{part}");
        let kept = tab.eval("document.activeElement.textContent");
        tab.eval("render(inbox => inbox.querySelector('h1').append('!'.repeat(1 + document.querySelector('#inbox h1').textContent.length)))");
        tab.wait_for("document.querySelector('#inbox h1').textContent.endsWith('!')");
        assert_eq!((tab.eval(current), tab.eval(focused)), (2.into(), 2.into()), "{part}");
        assert_eq!(tab.eval("document.activeElement.textContent"), kept, "{part}");
    }
    // What is written in a card stays there.
    tab.eval("render(inbox => inbox.querySelectorAll('.item .req').forEach(card => card.insertAdjacentHTML('beforeend', '<input type=password name=secret>')))");
    tab.wait_for("document.querySelectorAll('#inbox [name=secret]').length === 3");
    tab.eval("document.querySelectorAll('#inbox [name=secret]')[1].value = 'hidden'");
    tab.eval("render(inbox => { inbox.querySelectorAll('.item .req').forEach(card => card.insertAdjacentHTML('beforeend', '<input type=password name=secret>')); inbox.querySelector('h1').append('?'); inbox.querySelector('.item').remove(); })");
    tab.wait_for("document.querySelectorAll('#inbox [name=secret]').length === 2");
    let values = tab.eval("[...document.querySelectorAll('#inbox [name=secret]')].map(one => one.value)");
    assert_eq!(values, json!(["hidden", ""]));
    // The keys answer what is read.
    tab.wait_for("document.getElementById('conversation').dataset.moved === undefined");
    tab.eval("document.activeElement.blur()");
    tab.press("1");
    wait_until("the last one is answered", || {
        !page.run(&["inbox", "--json"]).stdout.contains("Delete three")
    });
    let left = page.run(&["inbox", "--json"]).success().stdout;
    assert!(left.contains("Delete one") && left.contains("Delete two"), "{left}");
}

#[test]
fn a_new_request_takes_neither_the_focus_nor_a_click_or_key_in_its_first_half_second() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.click("#p");
    tab.enter("a draft");
    // Clicks and presses a key the moment the request is there.
    tab.eval(
        "window.tried = 0; window.sent = []; const real = send; window.send = message => { sent.push(message.do); return real(message); }; \
         new MutationObserver(() => { const button = document.querySelector('#request [data-do=answer]'); if (!button || tried) return; \
           window.tried += 1; window.hadFocus = document.activeElement.id; button.click(); \
           button.dispatchEvent(new KeyboardEvent('keydown', { key: '1', bubbles: true })); \
         }).observe(document.getElementById('dock'), { childList: true, subtree: true })",
    );
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    tab.wait_for("window.tried === 1");
    assert_eq!(tab.eval("window.hadFocus"), "p", "a person goes on writing");
    assert_eq!(tab.eval("document.activeElement.id"), "p");
    tab.wait_for("performance.now() - requestSince > 500");
    assert_eq!(tab.eval("window.sent.includes('answer')"), false, "nothing was answered");
    assert_eq!(page.run(&["inbox", "--json"]).success().stdout.matches("requestId").count(), 1);
    assert_eq!(tab.eval("document.getElementById('p').value"), "a draft");
    tab.click("#request [data-do=answer]");
    tab.wait_for_text("You allowed it this once.");
    assert_eq!(tab.eval("document.getElementById('p').value"), "a draft");
}

#[test]
fn a_request_says_when_it_was_asked_and_where_else_it_is_shown() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let link = page.run(&["open", "--print"]).success().stdout.trim().to_owned();
    let other = Browser::start();
    let phone = other.open("about:blank");
    phone.set_user_agent("Mozilla/5.0 (Linux; Android 16) Chrome/150.0.0.0 Mobile Safari/537.36");
    phone.go_to(&link);
    phone.go_to(&page.address(&format!("/s/{id}")));
    let (first, second) = (page.open_session(&id), page.open_session(&id));
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    let note = "document.querySelector('#request .req > header p')?.textContent";
    for tab in [&first, &second] {
        tab.wait_for(&format!("{note}?.includes('Also shown in another tab and Chrome on Android.') || {note}?.includes('Also shown in Chrome on Android and another tab.')"));
        tab.wait_for(&format!("/^Asked \\d+ s ago\\. /.test({note})"));
        let attached = tab.eval("[...document.querySelectorAll('#details dt [data-browser]')].map(name => name.parentElement.textContent)");
        assert_eq!(attached, json!(["This browser, 2 tabs", "Chrome on Android"]));
        assert_eq!(tab.eval("document.querySelector('#head .present .num').textContent"), "2");
    }
    phone.wait_for(&format!("{note}?.includes('Also shown in Chrome on Linux.')"));
    phone.close();
    drop(other);
    first.wait_for(&format!("{note}?.includes('Also shown in another tab.')"));
    second.close();
    first.wait_for(&format!("!{note}.includes('Also') || document.querySelector('#request .also').hidden"));
}
