//! What people do with a session and its prompts.

use parlor_testkit::browser::{Key, Tab};
use parlor_testkit::scenario::Scenario;

use crate::{PARLOR, Page};

/// Whether the clipboard has a text, as an expression of the page.
#[track_caller]
fn wait_for_clipboard(tab: &Tab, condition: &str) {
    tab.wait_for(&format!("navigator.clipboard.readText().then(text => {condition})"));
}

fn allow_clipboard(page: &Page) {
    let origin = page.address("");
    page.browser.allow(&origin, &["clipboardReadWrite", "clipboardSanitizedWrite"]);
}

#[test]
fn commands_and_files_are_completed_with_the_keyboard() {
    let page = Page::new();
    for name in ["notes.txt", "nothing.txt"] {
        std::fs::write(page.work().join(name), "x").unwrap();
    }
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    // The connection of this browser knows the commands of the agent.
    tab.wait_for("document.querySelector('#composer-bar select')");
    tab.click("#p");
    tab.press("/");
    tab.wait_for("document.querySelector('#completions:not([hidden]) [aria-selected=true]')");
    let first = tab.eval("document.querySelector('#completions [aria-selected=true] code').textContent");
    assert!(first.as_str().is_some_and(|text| text.starts_with('/')), "{first}");
    tab.press_key(Key::Escape, 0);
    tab.wait_for("document.getElementById('completions').hidden");
    assert_eq!(tab.eval("document.activeElement.id"), "p", "Esc closes the list only");
    tab.eval("prompt.select()");
    tab.enter("look at @not");
    tab.wait_for("document.querySelectorAll('#completions:not([hidden]) li').length === 2");
    tab.press_key(Key::ArrowDown, 0);
    let chosen = tab.eval("document.querySelector('#completions [aria-selected=true] code').textContent");
    assert_eq!(
        tab.eval("prompt.getAttribute('aria-activedescendant')"),
        tab.eval("document.querySelector('#completions [aria-selected=true]').id")
    );
    tab.press_key(Key::Enter, 0);
    assert_eq!(tab.eval("prompt.value"), format!("look at {} ", chosen.as_str().unwrap()));
    assert_eq!(tab.eval("document.querySelectorAll('#log > .user').length"), 1, "Enter sent nothing");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn a_session_is_renamed_deleted_restored_and_archived_from_its_menu() {
    let page = Page::new();
    let id = page.new_session("title Before\nsay hello");
    allow_clipboard(&page);
    let tab = page.open_session(&id);
    tab.resize(1440, 900);
    tab.wait_for("document.querySelector('#composer-bar select')");
    tab.click("#session-menu > summary");
    tab.click("#new-title");
    assert_eq!(tab.eval("document.getElementById('new-title').value"), "Before");
    tab.eval("document.getElementById('new-title').select()");
    tab.enter("After");
    tab.press_key(Key::Enter, 0);
    tab.wait_for(
        "document.getElementById('title').textContent === 'After' && document.title.startsWith('After')",
    );
    tab.wait_for("document.querySelector('#sessions .t').textContent === 'After'");
    tab.click("#session-menu > summary");
    tab.click("#session-menu [data-do=copy-text]");
    wait_for_clipboard(&tab, &format!("text.startsWith('parlor ') && text.includes('{id}')"));
    tab.click("#session-menu > summary");
    tab.click("#session-menu [data-do=delete]");
    tab.click("[data-do=undelete]");
    tab.wait_for("!document.querySelector('[data-do=undelete]')");
    tab.click("#session-menu > summary");
    tab.click("#session-menu [data-do=archive]");
    tab.wait_for("location.pathname === '/' && document.querySelector('#sessions .archived')");
    tab.wait_for_text("All sessions are archived.");
    assert!(page.run(&["show", &id]).success().stdout.contains("hello"));
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn an_option_of_the_agent_is_set_and_other_tabs_show_it() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let (first, second) = (page.open_session(&id), page.open_session(&id));
    let value = "document.querySelector('#composer-bar select')?.value";
    for tab in [&first, &second] {
        tab.wait_for(value);
    }
    let before = first.eval(value);
    first.click("#p");
    first.eval(
        "(() => { const select = document.querySelector('#composer-bar select'); \
         select.value = [...select.options].find(option => !option.selected).value; \
         select.dispatchEvent(new Event('change', { bubbles: true })); })()",
    );
    second.wait_for(&format!("{value} !== {before}"));
    assert_eq!(first.eval(value), second.eval(value));
}

#[test]
fn code_is_copied_with_its_button() {
    let page = Page::of(|| Scenario::new(PARLOR).with_test_agent());
    let code = r#"raw {"update":{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"```rust\nlet answer = 42;\n```"}}}"#;
    let id = page.new_session(code);
    allow_clipboard(&page);
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.click("#log .code [data-do=copy-code]");
    wait_for_clipboard(&tab, "text.trim() === 'let answer = 42;'");
}
