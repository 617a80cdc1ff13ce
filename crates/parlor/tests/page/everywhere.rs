//! All widths, screen readers, the keyboard.

use parlor_testkit::browser::{Key, Tab};
use parlor_testkit::wait::wait_until;
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
    wait_until("the request waits", || page.scenario.run(&["inbox", "--json"]).stdout.contains("requestId"));
    (page, id)
}

/// The paths of all pages.
fn paths(id: &str) -> [String; 6] {
    ["/", "/inbox", "/new", "/keys", "/search?q=bold", &format!("/s/{id}")].map(str::to_owned)
}

/// Shows a path, with what comes over its connection: the request of a session.
#[track_caller]
fn show(page: &Page, tab: &Tab, path: &str) {
    tab.go_to(&page.address(path));
    tab.wait_for("socket?.readyState === 1");
    tab.wait_for("!document.getElementById('log') || document.querySelector('#request .req')");
}

#[test]
fn no_page_scrolls_sideways_from_360_pixels_to_4k() {
    let (page, id) = full_page();
    let tab = page.open("/");
    for width in [360, 720, 1024, 1440, 3840] {
        tab.resize(width, 800);
        for path in paths(&id) {
            show(&page, &tab, &path);
            let widths = tab.eval("[document.documentElement.scrollWidth, innerWidth]");
            assert!(widths[0].as_f64() <= widths[1].as_f64(), "{path} at {width}: {widths}");
        }
    }
}

#[test]
fn the_list_shows_at_all_widths_which_sessions_need_a_person() {
    let (page, _) = full_page();
    let tab = page.open("/");
    // Its times are in the zone of the browser.
    tab.wait_for("[...document.querySelectorAll('.sess')].every(row => row.querySelector('time.when[title]')?.textContent === 'now')");
    tab.eval("(() => { const time = document.querySelector('.sess time.when'), at = new Date(Date.now() - 86400000); \
         time.dateTime = at.toISOString(); window.shown = clockOf(at); count(document); })()");
    assert_eq!(tab.eval("document.querySelector('.sess time.when').textContent === window.shown"), true);
    for width in [360, 720, 800, 899, 1024, 1440] {
        tab.resize(width, 800);
        tab.wait_for("document.querySelector('.sess .badge.you')?.getClientRects().length === 1");
        let is_inside = "(() => { const row = document.querySelector('.sess:has(.badge.you)').getBoundingClientRect(); \
             return document.querySelector('.sess .badge.you').getBoundingClientRect().right <= row.right; })()";
        assert_eq!(tab.eval(is_inside), true, "{width}");
    }
}

/// What the browser was sent for the page, its style sheet and its script: how many they are, their bytes as they were sent, and those that
/// it had to load again.
const WEIGHT: &str = "(() => { const sent = [...performance.getEntriesByType('navigation'), \
     ...performance.getEntriesByType('resource').filter(({ name }) => name.includes('/assets/page'))]; \
     const sum = of => sent.map(of).reduce((all, one) => all + one); \
     return [sent.length, sum(one => one.encodedBodySize), sum(one => one.transferSize)]; })()";

#[test]
fn the_page_of_a_session_has_less_than_60_kilobytes_and_its_files_are_loaded_once() {
    let (page, id) = full_page();
    let tab = page.open_session(&id);
    let first = tab.eval(WEIGHT);
    assert!(first[0] == 3 && first[1].as_u64() > Some(5_000) && first[1].as_u64() < Some(60_000), "{first}");
    tab.go_to(&page.address("/inbox"));
    let next = tab.eval(WEIGHT);
    assert!(next[0] == 3 && next[2].as_u64() < Some(10_000), "only the page is sent: {next}");
}

#[test]
fn controls_of_a_phone_are_large_and_the_options_of_a_request_are_in_columns() {
    let (page, id) = full_page();
    let tab = page.open("/");
    tab.resize(390, 844);
    show(&page, &tab, &format!("/s/{id}"));
    tab.eval("document.getElementById('session-menu').open = true");
    let small = tab.eval(
        "[...document.querySelectorAll('#session-menu .menu > :is(a, button)')].filter(one => one.getBoundingClientRect().height < 44) \
         .map(one => one.textContent)",
    );
    assert_eq!(small, json!([]));
    show(&page, &tab, "/inbox");
    tab.wait_for("document.querySelector('#inbox .req .opts')");
    let lefts = tab.eval("[...new Set([...document.querySelectorAll('#inbox .req .opts > .btn')].map(one => one.getBoundingClientRect().left))].length");
    assert_eq!(lefts, 2);
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
                show(&page, &tab, &path);
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
fn the_page_is_usable_at_a_zoom_of_200_percent() {
    let (page, id) = full_page();
    let tab = page.open("/");
    for path in paths(&id) {
        // A window of 1280 × 800 has half as many pixels; so has one of 1440 × 900.
        for (width, height) in [(640, 400), (720, 450)] {
            tab.resize(width, height);
            show(&page, &tab, &path);
            assert_fits(&tab, &format!("{path} at {width} × {height}"));
        }
    }
}

/// Nothing is beside the window, and what can be pressed is in it.
#[track_caller]
fn assert_fits(tab: &Tab, at: &str) {
    let widths = tab.eval("[document.documentElement.scrollWidth, innerWidth]");
    assert!(widths[0].as_f64() <= widths[1].as_f64(), "{at}: {widths}");
    let outside = tab.eval(
        "[...document.querySelectorAll('.main > section > .bar button, .main > section > .bar summary, #dock .opts button, #composer:not([hidden]) button')] \
         .filter(button => button.offsetParent && !button.closest('.menu')) \
         .map(button => [button.textContent.trim() || button.getAttribute('aria-label'), button.getBoundingClientRect()]) \
         .filter(([, { top, bottom, left, right }]) => top < 0 || bottom > innerHeight + 1 || left < 0 || right > innerWidth + 1) \
         .map(([name, { top, bottom, left, right }]) => `${name} ${top} ${bottom} ${left} ${right}`)",
    );
    assert_eq!(outside, json!([]), "{at}");
}

#[test]
fn screen_readers_find_landmarks_with_names() {
    let (page, id) = full_page();
    let tab = page.open("/");
    tab.resize(1440, 900);
    for path in paths(&id) {
        show(&page, &tab, &path);
        let count =
            |selector: &str| tab.eval(&format!("document.querySelectorAll({}).length", json!(selector)));
        for (landmark, selector) in [
            ("main", "main"),
            ("navigation", "nav[aria-label]"),
            ("search", "[role=search]"),
            ("live region", "#live[aria-live=polite][role=status]"),
            ("heading", "h1"),
            ("skip link", "body > a.skip[href='#conversation']"),
            ("its target", "#conversation[tabindex='0'][aria-label], #conversation[tabindex='0']"),
        ] {
            assert_eq!(count(selector), 1, "{landmark} of {path}");
        }
        // States have names, not only colours, and each has its own shape.
        let states = tab.eval(
            "[...document.querySelectorAll('.st')].filter(icon => icon.getAttribute('role') !== 'img' || !icon.getAttribute('aria-label')).length",
        );
        assert_eq!(states, 0, "states without a name on {path}");
    }
    assert_eq!(tab.eval("document.querySelectorAll('aside[aria-label]').length"), 1);
    let shapes = tab.eval("[...new Set([...document.querySelectorAll('#sessions .st')].map(icon => `${icon.getAttribute('aria-label')} ${icon.querySelector('use').getAttribute('href')}`))].sort()");
    assert_eq!(shapes, json!(["failed #i-bad", "needs you #i-you"]));
}

#[test]
fn the_live_region_announces_turns_and_requests_but_not_streamed_text() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.wait_for("socket?.readyState === 1");
    tab.eval(
        "window.announced = []; new MutationObserver(() => announced.push(document.getElementById('live').textContent)) \
         .observe(document.getElementById('live'), { childList: true, characterData: true, subtree: true })",
    );
    page.run(&["prompt", "-s", &id, "--no-wait", "stream 100 20 200\nask Delete the notes\nsay The end."])
        .success();
    tab.wait_for("announced.some(text => text.includes('asks'))");
    page.run(&["answer", "--allow", "r1"]).success();
    tab.wait_for_text("The end.");
    tab.wait_for("announced.at(-1) === 'demo has finished'");
    let announced = tab.eval("announced");
    let announced: Vec<_> = announced.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(announced.len() <= 4, "{announced:?}");
    assert_eq!(announced[0], "demo is answering", "{announced:?}");
    // Entries are no live region either.
    assert_eq!(
        tab.eval("document.querySelectorAll('#log [aria-live], #log[aria-live], #log [role=log]').length"),
        0
    );
}

#[test]
fn nothing_moves_while_text_streams() {
    let page = Page::new();
    let id = page.new_session(&"say A line of text that stands here already.\n".repeat(40));
    let tab = page.open_session(&id);
    tab.resize(1440, 900);
    tab.wait_for("socket?.readyState === 1");
    page.run(&["prompt", "-s", &id, "--no-wait", "stream 800 20 100\nsay The end."]).success();
    tab.wait_for("document.querySelector('#head .since')?.textContent");
    // A person reads further up: what is in view stays, and so do the bar and the composer.
    tab.eval("document.getElementById('conversation').scrollTop = 300");
    tab.eval(
        "window.places = new Set(); window.drawn = 0; \
         const read = document.querySelectorAll('#log > .entry')[8]; \
         requestAnimationFrame(function frame() { if (root.dataset.state !== 'run') return; \
           const top = it => Math.round(it.getBoundingClientRect().top), left = it => Math.round(it.getBoundingClientRect().left); \
           places.add([top(read), top(document.getElementById('composer')), left(document.querySelector('#head .as-of').nextElementSibling), \
             left(document.querySelector('#head .present')), document.getElementById('conversation').scrollTop].join()); \
           drawn += 1; requestAnimationFrame(frame); })",
    );
    tab.wait_for("root.dataset.state === 'idle'");
    let places = tab.eval("[...places]");
    assert_eq!(tab.errors(), [""; 0]);
    assert!(tab.eval("drawn").as_u64() > Some(5), "{}", tab.eval("drawn"));
    assert_eq!(places.as_array().map(Vec::len), Some(1), "{places}");
    // At the end, the view follows.
    tab.press("G");
    tab.wait_for("following()");
    page.run(&["prompt", "-s", &id, "--yes", "stream 50 20 100\nsay The very end."]).success();
    tab.wait_for("document.querySelector('#log > .agent:last-child').innerText.includes('The very end.')");
    tab.wait_for("following()");
}

#[test]
fn every_action_of_a_message_can_be_reached_without_a_mouse_over_it() {
    let page = Page::new();
    let id = page.new_session("say hello");
    let tab = page.open_session(&id);
    tab.resize(390, 844);
    tab.reload();
    let hidden = tab.eval("[...document.querySelectorAll('#log .more')].filter(button => getComputedStyle(button).opacity !== '1' || button.getBoundingClientRect().height < 36).length");
    assert_eq!(hidden, 0, "each message of a phone has a visible button");
    tab.click("#log > .agent .more");
    tab.wait_for("!document.getElementById('message-menu').hidden");
    let low = tab.eval("[...document.querySelectorAll('#message-menu button')].filter(button => button.getBoundingClientRect().height < 44).length");
    assert_eq!(low, 0, "targets have 44 pixels");
}

#[test]
fn the_options_of_a_long_request_are_in_view_at_all_sizes() {
    let page = Page::new();
    let id = page.new_session("say hello");
    page.run(&["prompt", "-s", &id, "--no-wait", "ask Delete the notes"]).success();
    let tab = page.open_session(&id);
    tab.wait_for("document.querySelector('#request .req > .scroll')");
    // Nothing replaces the request while it is made longer.
    tab.wait_for("socket?.readyState === 1");
    tab.eval("socket.onmessage = null");
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
