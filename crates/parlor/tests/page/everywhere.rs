//! All widths, screen readers, the keyboard.

use parlor_testkit::browser::{Key, Tab};
use serde_json::json;

use crate::Page;

/// A page with a session that has all kinds of entries, a request and a failed turn; the id of the session.
fn full_page() -> (Page, String) {
    let page = Page::new();
    page.run(&["prompt", "--new", "fail -32000 the model is overloaded"]).exit_code(1);
    let id = page.new_session(
        "title A session with a long title that does not fit into the list at the side of the page\nthink Let me see\n\
         say Some **bold** text, `code`, and averyveryveryveryveryveryveryveryveryveryveryverylongwordwithoutaspace\n\
         tool Edit the notes\nterminal printf 'a line %080d\\n' 1\nimage\nlink\nplan One;Two\nusage\nredact",
    );
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    (page, id)
}

/// The paths of all pages.
fn paths(id: &str) -> [String; 6] {
    ["/", "/inbox", "/new", "/keys", "/search?q=bold", &format!("/s/{id}")].map(str::to_owned)
}

#[test]
fn no_page_scrolls_sideways_from_360_pixels_to_4k() {
    let (page, id) = full_page();
    let tab = page.open("/");
    for width in [360, 720, 1024, 1440, 3840] {
        tab.resize(width, 800);
        for path in paths(&id) {
            tab.go_to(&page.address(&path));
            let widths = tab.eval("[document.documentElement.scrollWidth, innerWidth]");
            assert!(widths[0].as_f64() <= widths[1].as_f64(), "{path} at {width}: {widths}");
        }
    }
}

#[test]
fn axe_finds_no_serious_problem() {
    let axe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/npm/node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(axe).expect("./test.sh installs axe-core");
    let (page, id) = full_page();
    let tab = page.open("/");
    for scheme in ["light", "dark"] {
        tab.set_media(&[("prefers-color-scheme", scheme), ("prefers-reduced-motion", "reduce")]);
        for width in [390, 1440] {
            tab.resize(width, 844);
            for path in paths(&id) {
                tab.go_to(&page.address(&path));
                tab.eval(
                    "for (const details of document.querySelectorAll('#log details')) details.open = true",
                );
                let problems = problems(&tab, &axe);
                assert_eq!(problems, json!([]), "{path}, {scheme}, {width} pixels");
            }
        }
    }
}

/// The serious problems that axe finds.
fn problems(tab: &Tab, axe: &str) -> serde_json::Value {
    tab.inject(axe);
    tab.eval(
        "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations \
         .filter(({ impact }) => impact === 'serious' || impact === 'critical') \
         .map(({ id, help, nodes }) => [id, help, nodes.slice(0, 3).map(node => node.html.slice(0, 300) + ' ' + node.failureSummary)]))",
    )
}

#[test]
fn everything_is_reached_with_the_keyboard() {
    let page = Page::new();
    let first = page.new_session("title The first\nsay one");
    page.new_session("title The second\nsay two");
    let tab = page.open("/");
    tab.wait_for("socket?.readyState === 1");
    tab.press("]");
    tab.wait_for("location.pathname.startsWith('/s/') && socket?.readyState === 1");
    tab.press("]");
    tab.wait_for(&format!("location.pathname === '/s/{first}' && socket?.readyState === 1"));
    // Messages.
    tab.press("k");
    tab.wait_for("document.querySelector('#log > .cur')");
    assert_eq!(tab.eval("document.querySelector('#log > .cur').matches('.agent')"), true);
    tab.press("k");
    assert_eq!(tab.eval("document.querySelector('#log > .cur').matches('.user')"), true);
    // The composer.
    tab.press_key(Key::Enter, 0);
    tab.wait_for("document.activeElement.id === 'p'");
    tab.enter("ask Delete the notes");
    tab.press_key(Key::Enter, 0);
    tab.wait_for("document.querySelector('#request .req')");
    tab.press_key(Key::Escape, 0);
    tab.press("p");
    tab.wait_for("document.activeElement.closest('.req')");
    tab.wait_for("performance.now() - requestSince > 500");
    tab.press("1");
    tab.wait_for_text("You allowed it this once.");
    // Details, theme, keys.
    tab.eval("document.activeElement.blur()");
    let before = tab.eval("getComputedStyle(document.getElementById('details')).display");
    tab.press("d");
    tab.wait_for(&format!("getComputedStyle(document.getElementById('details')).display !== {before}"));
    tab.press("?");
    tab.wait_for("location.pathname === '/keys'");
    tab.wait_for("socket?.readyState === 1");
    tab.press("i");
    tab.wait_for("location.pathname === '/inbox'");
    assert_eq!(tab.errors(), [""; 0]);
}

#[test]
fn a_phone_shows_the_list_or_a_session() {
    let page = Page::new();
    let id = page.new_session("title The only one\nsay hello");
    let tab = page.open("/");
    tab.resize(390, 844);
    tab.reload();
    tab.click(&format!("a[href='/s/{id}']"));
    tab.wait_for_text("hello");
    assert_eq!(tab.eval("getComputedStyle(document.querySelector('nav.side')).display"), "none");
    tab.click("a.back");
    tab.wait_for("location.pathname === '/'");
    tab.wait_for_text("The only one");
}

#[test]
fn reduced_motion_stops_all_animations() {
    let page = Page::new();
    let id = page.new_session("say hello");
    page.run(&["prompt", "-s", &id, "--no-wait", "sleep 60000"]).success();
    let tab = page.open_session(&id);
    tab.wait_for("document.querySelector('[data-do=stop]')");
    tab.set_media(&[("prefers-reduced-motion", "reduce")]);
    let moving = "document.getAnimations().filter(animation => animation.playState === 'running').length";
    tab.wait_for(&format!("{moving} === 0"));
    tab.set_media(&[("prefers-reduced-motion", "no-preference")]);
    tab.wait_for(&format!("{moving} > 0"));
}

#[test]
fn the_options_of_a_long_request_are_in_view_at_all_sizes() {
    let page = Page::new();
    let id = page.new_session("say hello");
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    let tab = page.open_session(&id);
    tab.wait_for("document.querySelector('#request .req > .scroll')");
    tab.eval(
        "document.querySelector('#request .req > .scroll').prepend(...Array.from({ length: 200 }, (_, line) => { \
         const part = document.createElement('p'); part.textContent = `line ${line}`; return part; }))",
    );
    for (width, height) in [(360, 640), (390, 844), (844, 390), (1024, 768), (1440, 900)] {
        tab.resize(width, height);
        let hidden = tab.eval(
            "[...document.querySelectorAll('#request .opts button')].filter(button => { \
             const { top, bottom, left, right } = button.getBoundingClientRect(); \
             return top < 0 || bottom > innerHeight || left < 0 || right > innerWidth; }).length",
        );
        assert_eq!(hidden, 0, "options that are not in view at {width} × {height}");
        let is_scrolled = tab.eval("(() => { const it = document.querySelector('#request .req > .scroll'); return it.scrollHeight > it.clientHeight; })()");
        assert_eq!(is_scrolled, true, "the request scrolls inside at {width} × {height}");
    }
}
