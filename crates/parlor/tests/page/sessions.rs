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
    tab.wait_for(&format!("location.pathname === '/s/{id}' && socket?.readyState === 1"));
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

#[test]
fn the_list_changes_without_a_reload() {
    let page = Page::new();
    let first = page.new_session("title The first\nsay one");
    let tab = page.open("/");
    tab.wait_for_text("The first");
    tab.wait_for("socket?.readyState === 1");
    tab.eval("window.isSame = true");
    page.new_session("title The second\nsay two");
    tab.wait_for_text("The second");
    page.run(&["title", &first, "Another title"]).success();
    tab.wait_for_text("Another title");
    page.run(&["prompt", "-s", &first, "--no-wait", "ask Delete the notes"]).success();
    tab.wait_for("document.querySelector('#sessions .badge.you')");
    tab.wait_for("document.getElementById('inbox-count').innerText.trim().startsWith('1')");
    page.run(&["rm", "--yes", &first]).success();
    tab.wait_without_text("Another title");
    assert_eq!(tab.eval("window.isSame"), true);
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn forks_are_below_the_session_that_they_were_forked_from() {
    let page = Page::new();
    let id = page.new_session("title The trunk\nsay one");
    let fork = page.run(&["fork", &id]).success().stdout.trim().to_owned();
    page.run(&["title", &fork, "The branch"]).success();
    let tab = page.open("/");
    tab.wait_for_text("The branch");
    let inside = tab.eval(&format!(
        "document.querySelector(\"a[href='/s/{id}']\").closest('li').querySelector(\".kids a[href='/s/{fork}']\") !== null"
    ));
    assert_eq!(inside, true);
}

#[test]
fn a_search_while_typing_finds_a_message_and_opens_it() {
    let page = Page::new();
    let id = page.new_session(&format!("say the needle in the hay\n{}", "stream 1 40\n".repeat(400)));
    let tab = page.open("/");
    tab.wait_for("socket?.readyState === 1");
    tab.press("/");
    tab.press("needle");
    // The hits of the whole word: those of its beginning would be replaced under the mouse.
    tab.wait_for("document.querySelector('#hits:not([hidden]) .hit mark')?.textContent === 'needle'");
    tab.click("#hits .hit");
    tab.wait_for(&format!("location.pathname === '/s/{id}' && location.hash"));
    // The hit is far above the latest entries, which are loaded first.
    tab.wait_for("(() => { const it = document.getElementById(location.hash.slice(1)); if (!it) return false; \
                   const { top, bottom } = it.getBoundingClientRect(); return bottom > 0 && top < innerHeight; })()");
    tab.wait_for_text("the needle in the hay");
}

#[test]
fn hits_that_stay_the_same_are_not_replaced() {
    let page = Page::new();
    page.new_session("say the needle in the hay");
    let tab = page.open("/");
    tab.wait_for("socket?.readyState === 1");
    tab.press("/");
    tab.press("needle");
    tab.wait_for("document.querySelector('#hits:not([hidden]) .hit mark')?.textContent === 'needle'");
    tab.eval(
        "window.replaced = 0; new MutationObserver(() => { replaced += 1; }).observe(document.getElementById('hits').parentElement, { childList: true }); \
         window.searched = () => performance.getEntriesByType('resource').filter(({ name }) => name.includes('q=needle%20')).length",
    );
    tab.press(" ");
    tab.wait_for("searched() === 1");
    tab.press("quokka");
    tab.wait_for_text("Nothing found in messages");
    assert_eq!(tab.eval("replaced"), 1);
}

#[test]
fn a_session_is_started_on_the_page() {
    let page = Page::new();
    std::fs::create_dir(page.work().join("a directory")).unwrap();
    let tab = page.open("/new");
    tab.wait_for("socket?.readyState === 1");
    let directory = page.work().join("a directory");
    tab.click("#dir");
    tab.eval("document.getElementById('dir').select()");
    let typed = directory.to_str().unwrap();
    tab.enter(&typed[..typed.len() - 4]);
    tab.wait_for("document.querySelector('#dirs option')");
    tab.eval("document.getElementById('dir').select()");
    tab.enter(typed);
    tab.click("#fp");
    tab.enter("say it is started");
    tab.click("form.start .btn.main");
    tab.wait_for("location.pathname.startsWith('/s/')");
    tab.wait_for("[...document.querySelectorAll('#log > .agent')].some(one => one.innerText.includes('it is started'))");
    let listed = page.run(&["ls", "--json"]).success().stdout;
    assert!(listed.contains("a directory"), "{listed}");
}

#[test]
fn a_session_that_cannot_be_started_says_why() {
    let page = Page::new();
    let tab = page.open("/new");
    tab.wait_for("socket?.readyState === 1");
    tab.click("#dir");
    tab.eval("document.getElementById('dir').select()");
    tab.enter("/there/is/nothing");
    tab.click("#fp");
    tab.enter("say never");
    tab.click("form.start .btn.main");
    tab.wait_for("document.getElementById('new-error').textContent.includes('/there/is/nothing')");
    assert_eq!(tab.eval("document.getElementById('fp').value"), "say never", "the prompt is kept");
}

#[test]
fn the_inbox_answers_requests_of_all_sessions() {
    let page = Page::new();
    let ids: Vec<_> = ["one", "two"]
        .iter()
        .map(|name| {
            let id = page.new_session(&format!("title The {name}"));
            page.run(&["prompt", "-s", &id, "--no-wait", &format!("ask Delete {name}")]).success();
            id
        })
        .collect();
    let tab = page.open("/inbox");
    tab.wait_for_text("Delete one");
    tab.wait_for_text("Delete two");
    tab.wait_for_text("2 requests wait for you");
    tab.wait_for("document.querySelectorAll('#sessions .badge.you').length === 2");
    // A card that has just come or moved accepts nothing.
    tab.wait_for("socket?.readyState === 1 && !document.querySelector('[data-moved]')");
    tab.click("#inbox .req [data-do=answer]");
    tab.wait_for_text("1 request waits for you");
    tab.wait_for("!document.querySelector('[data-moved]')");
    tab.click("#inbox .req [data-do=not_now]");
    tab.wait_for("!document.querySelector('#inbox .item')");
    let left = page.run(&["inbox", "--json"]).success().stdout;
    assert_eq!(left.matches("requestId").count(), 1, "not now leaves it open: {left}");
    assert!(page.run(&["show", &ids[0]]).success().stdout.contains("You allowed it this once."));
}

#[test]
fn an_inbox_that_was_just_loaded_accepts_nothing() {
    let page = Page::new();
    let id = page.new_session("say hello");
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    let tab = page.open("/inbox");
    tab.wait_for("document.querySelector('#inbox .req')");
    tab.wait_for("socket?.readyState === 1 && !document.querySelector('[data-moved]')");
    tab.eval("window.sent = []; window.send = ({ do: action }) => { sent.push(action); return true; }");
    // The script runs as in a page that is loaded, and a person clicks at once.
    let script = include_str!("../../../parlor-web/assets/lists.js");
    tab.inject(&format!("{script}\ndocument.querySelector('#inbox [data-do=answer]').click();"));
    tab.wait_for("!document.querySelector('[data-moved]')");
    assert_eq!(tab.eval("sent"), serde_json::json!([]));
    tab.click("#inbox [data-do=answer]");
    assert_eq!(tab.eval("sent"), serde_json::json!(["answer"]));
}

#[test]
fn every_page_shows_why_an_action_failed() {
    let page = Page::new();
    let id = page.new_session("say hello");
    for path in ["/", "/inbox", "/new", "/archived", "/keys", "/search?q=hello", &format!("/s/{id}")] {
        let tab = page.open(path);
        tab.wait_for("socket?.readyState === 1");
        tab.eval("send({ do: 'fly' })");
        tab.wait_for(
            "document.querySelector('.note.bad')?.innerText.includes('The page sent a bad message')",
        );
        tab.click(".note.bad button");
        tab.wait_for("!document.querySelector('.note.bad')");
        tab.close();
    }
}

#[test]
fn a_form_that_failed_can_be_sent_again() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval("select(document.querySelector('#log > .user'))");
    tab.press("e");
    tab.wait_for("document.querySelector('.edit-form textarea')");
    tab.eval("document.querySelector('.edit-form textarea').select()");
    tab.enter(" ");
    tab.click(".edit-form .btn.main");
    tab.wait_for_text("The prompt is empty.");
    tab.wait_for("!document.querySelector('.edit-form .btn.main').disabled");
}

#[test]
fn an_archived_session_is_opened_from_its_list_and_restored() {
    let page = Page::new();
    let id = page.new_session("title Last year\nsay the needle");
    page.run(&["archive", &id]).success();
    let tab = page.open("/");
    tab.wait_for("document.querySelector('#sessions .archived')");
    assert!(!tab.text().contains("Last year"), "it is not among the others");
    tab.click("#sessions .archived");
    tab.wait_for("location.pathname === '/archived'");
    tab.click(&format!("#archived a[href='/s/{id}']"));
    tab.wait_for_text("This session is archived.");
    tab.wait_for_text("the needle");
    tab.wait_for("socket?.readyState === 1");
    tab.click("[data-do=restore]");
    tab.wait_without_text("This session is archived.");
    tab.wait_for("document.querySelector('#sessions a.sess')");
}
