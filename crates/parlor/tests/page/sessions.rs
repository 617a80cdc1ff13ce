//! The list of sessions, and reading them.

use crate::Page;

#[test]
fn a_conversation_is_shown_with_its_kinds_of_entries() {
    let page = Page::new();
    let id = page.new_session(
        "title Kinds of entries\nthink Let me see\nsay Some **bold** text\ntool Edit it\nterminal printf '\\033[31mred\\033[0m'\nimage\nlink\nplan One;Two",
    );
    let tab = page.open("/");
    tab.wait_for_text("Kinds of entries");
    tab.click(&format!("a[href='/s/{id}']"));
    tab.wait_for_text("Some bold text");
    assert_eq!(tab.eval("document.querySelector('h1').textContent"), "Kinds of entries");
    assert_eq!(tab.eval("document.querySelector('#log strong').textContent"), "bold");
    assert_eq!(tab.eval("document.querySelectorAll('#log table.diff').length"), 1);
    assert_eq!(tab.eval("document.querySelectorAll('#log img').length"), 1);
    tab.wait_for(
        "[...document.querySelectorAll('#log img')].every(image => image.complete && image.naturalWidth > 0)",
    );
    assert_eq!(tab.errors(), [""; 0]);
}
