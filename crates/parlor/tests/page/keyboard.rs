//! The keys that the page of keys lists.

use parlor_testkit::browser::{Key, Tab};
use parlor_testkit::programs;
use parlor_testkit::scenario::Scenario;

use crate::{PARLOR, Page};

/// Ctrl.
const CTRL: u8 = 2;

/// A server with two agents.
fn two_agents() -> Page {
    Page::of(|| {
        let mut scenario = Scenario::new(PARLOR);
        scenario.serve(&["--agent", "demo", "--agent", &format!("other={}", programs::test_agent())]);
        scenario
    })
}

fn ready(tab: &Tab) {
    tab.wait_for("socket?.readyState === 1");
}

#[test]
fn every_key_does_what_the_list_of_keys_says() {
    let page = two_agents();
    let first = page.new_session("title The first\ntool Edit the notes\nsay one");
    let second = page.new_session("title The second\nsay two");
    page.browser
        .allow(page.address("").trim_end_matches('/'), &["clipboardReadWrite", "clipboardSanitizedWrite"]);
    let tab = page.open("/keys");
    tab.resize(1440, 900);
    ready(&tab);
    // All of them are listed.
    let listed = tab.eval("[...document.querySelectorAll('.keys kbd')].map(key => key.textContent)");
    for key in [
        "/", "i", "c", "[", "]", "d", "p", "?", "j", "k", "o", "y", "l", "f", "e", "r", "a", "m", "G",
        "Enter", "1", "9", "Esc", "@",
    ] {
        assert!(listed.as_array().unwrap().iter().any(|one| one == key), "{key}: {listed}");
    }

    let on_page = |key: &str, path: &str| {
        tab.press(key);
        tab.wait_for(&format!("location.pathname === '{path}' && socket?.readyState === 1"));
    };
    on_page("i", "/inbox");
    on_page("c", "/new");
    tab.eval("document.activeElement.blur()");
    on_page("?", "/keys");
    tab.press("/");
    tab.wait_for("document.activeElement.id === 'q'");
    tab.press_key(Key::Escape, 0);
    tab.eval("document.activeElement.blur()");
    on_page("]", &format!("/s/{second}"));
    on_page("]", &format!("/s/{first}"));
    on_page("[", &format!("/s/{second}"));
    on_page("]", &format!("/s/{first}"));

    // In the conversation: the prompt, the tool call, the answer.
    let current = "document.querySelector('#log > .cur')";
    tab.press("k");
    tab.wait_for(&format!("{current}?.matches('.agent')"));
    tab.press("k");
    tab.wait_for(&format!("{current}?.matches('.call')"));
    let is_open = tab.eval(&format!("{current}.querySelector('details').open"));
    tab.press("o");
    tab.wait_for(&format!("{current}.querySelector('details').open !== {is_open}"));
    tab.press("j");
    tab.wait_for(&format!("{current}?.matches('.agent')"));
    let clipboard =
        |what: &str| tab.wait_for(&format!("navigator.clipboard.readText().then(text => {what})"));
    tab.press("y");
    clipboard("text.trim() === 'one'");
    tab.press("l");
    clipboard(&format!("text.includes('/s/{first}#m-')"));
    tab.press("m");
    tab.wait_for("!document.getElementById('message-menu').hidden");
    tab.press_key(Key::Escape, 0);
    tab.wait_for("document.getElementById('message-menu').hidden");
    let is_shown = "getComputedStyle(document.getElementById('details')).display !== 'none'";
    for expected in ["!", ""] {
        tab.press("d");
        tab.wait_for(&format!("{expected}({is_shown})"));
    }
    tab.press("e");
    tab.wait_for("document.activeElement.matches('.edit-form textarea')");
    tab.press_key(Key::Escape, 0);
    tab.wait_for("!document.querySelector('.edit-form')");

    // A request: `p` goes to it, Esc leaves it, a digit answers it.
    page.run(&["prompt", "-s", &first, "--no-wait", "ask Delete the notes"]).success();
    tab.wait_for("document.querySelector('#request .req') && performance.now() - requestSince > 500");
    // Digits act only inside the request.
    tab.eval("document.activeElement.blur()");
    tab.press("1");
    tab.press("p");
    tab.wait_for("document.activeElement.closest('#request .req')");
    assert_eq!(page.run(&["inbox", "--json"]).success().stdout.matches("requestId").count(), 1);
    tab.press_key(Key::Escape, 0);
    tab.wait_for("!document.querySelector('#request .req') && !document.getElementById('composer').hidden");
    tab.eval("document.activeElement.blur()");
    on_page("p", "/inbox");
    tab.press("j");
    let opened = "document.querySelector('#inbox details.tool')";
    tab.wait_for(opened);
    tab.go_to(&page.address(&format!("/s/{first}")));
    ready(&tab);
    page.run(&["answer", "--allow", &request_id(&page)]).success();
    tab.wait_for_text("You allowed it this once.");

    // Ctrl . stops the turn, also in a text field.
    tab.click("#p");
    tab.enter("sleep 60000");
    tab.press_key(Key::Enter, 0);
    tab.wait_for("document.querySelector('[data-do=stop]')");
    tab.press_key(Key::Period, CTRL);
    tab.wait_for_text("Turn cancelled");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn another_agent_continues_and_the_answers_keep_the_names_of_their_agents() {
    let page = two_agents();
    let first = page.new_session("title The first\nsay one");
    let tab = page.open_session(&first);
    ready(&tab);
    tab.eval("select(document.querySelector('#log > .agent'))");
    tab.press("a");
    tab.wait_for("document.activeElement.dataset.agent === 'other'");
    tab.press("1");
    tab.wait_for(&format!(
        "location.pathname !== '/s/{first}' && document.getElementById('title') && socket?.readyState === 1"
    ));
    // The answer stays one of the agent that wrote it; the next one is of the other agent.
    let names = "[...document.querySelectorAll('#log > .agent h2')].map(name => name.textContent)";
    tab.wait_for(&format!("{names}.join() === 'demo'"));
    tab.click("#p");
    tab.enter("say three");
    tab.press_key(Key::Enter, 0);
    tab.wait_for(&format!("{names}.length >= 2"));
    assert_eq!(tab.eval(&format!("[...new Set({names})].join()")), "demo,other");
    tab.reload();
    assert_eq!(tab.eval(&format!("[...new Set({names})].join()")), "demo,other");
    assert_eq!(tab.errors(), [""; 0]);
}

/// The id of the only open request.
fn request_id(page: &Page) -> String {
    let open = page.run(&["inbox", "--json"]).success().last_json();
    let open = if open.is_array() { open[0].clone() } else { open };
    open["requestId"].as_str().unwrap_or_else(|| panic!("{open}")).to_owned()
}

#[test]
fn a_message_that_changes_stays_selected() {
    let page = Page::new();
    let id = page.new_session("say one");
    let tab = page.open_session(&id);
    ready(&tab);
    tab.press("k");
    tab.wait_for("document.querySelector('#log > .cur')?.matches('.agent')");
    for has_focus in [true, false] {
        if !has_focus {
            tab.eval("document.activeElement.blur()");
        }
        // The server sends it again, as with the files that its turn has changed.
        tab.eval(
            "(() => { const { id } = selected; const copy = selected.cloneNode(true); copy.querySelector('#acts')?.remove(); \
             copy.classList.remove('cur'); copy.removeAttribute('tabindex'); patches.put({ id, after: null, html: copy.outerHTML }); })()",
        );
        assert_eq!(
            tab.eval("selected.isConnected && document.querySelector('#log > .cur') === selected"),
            true
        );
        assert_eq!(tab.eval("document.activeElement === selected"), has_focus);
    }
    tab.press("m");
    tab.wait_for("!document.getElementById('message-menu').hidden");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn letters_in_text_fields_are_text() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    ready(&tab);
    tab.click("#p");
    tab.press("ic?dpfj[]/1");
    assert_eq!(tab.eval("document.getElementById('p').value"), "ic?dpfj[]/1");
    assert_eq!(tab.eval("location.pathname"), format!("/s/{id}"));
}

#[test]
fn the_tab_key_reaches_everything_in_order_and_the_first_stop_skips_the_list() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.resize(1440, 900);
    ready(&tab);
    tab.press_key(Key::Tab, 0);
    assert_eq!(tab.eval("document.activeElement.className"), "skip");
    let mut reached = Vec::new();
    for _ in 0..40 {
        tab.press_key(Key::Tab, 0);
        let name = tab.eval(
            "(() => { const it = document.activeElement; const ring = getComputedStyle(it); \
             return `${it.id || it.getAttribute('aria-label') || it.dataset.do || it.className}|${ring.outlineStyle}|${it.matches('textarea')}`; })()",
        );
        reached.push(name.as_str().unwrap().to_owned());
    }
    for wanted in [
        "theme",
        "q",
        "conversation",
        "p",
        "details",
        "Copy attach command",
        "Fork at the end",
        "Session menu",
    ] {
        assert!(reached.iter().any(|name| name.contains(wanted)), "{wanted}: {reached:?}");
    }
    // What has the focus is visible; the composer has a ring of its own.
    let hidden: Vec<_> = reached
        .iter()
        .filter(|name| !name.starts_with("BODY") && name.contains("|none|false") && !name.starts_with('|'))
        .collect();
    assert!(hidden.is_empty(), "{hidden:?}");
}
