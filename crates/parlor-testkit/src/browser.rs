//! A real browser, driven over the Chrome DevTools Protocol.
//!
//! `fantoccini` and the other WebDriver clients reach what these tests need (media features, sizes of phones, long tasks, memory)
//! only through the same protocol, and need another program beside the browser and about forty crates.

use std::cell::RefCell;
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;
use tokio_tungstenite::tungstenite::{Message, WebSocket, connect};

use crate::wait::{TIMEOUT, wait_until};

/// The names that Chromium has.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// A running Chromium with a profile of its own. It ends when the test is done with it.
#[derive(Debug)]
pub struct Browser {
    process: Child,
    devtools: Rc<RefCell<DevTools>>,
    // The profile is removed after the process has ended.
    _profile: TempDir,
}

/// A page in a browser.
#[derive(Debug)]
pub struct Tab {
    devtools: Rc<RefCell<DevTools>>,
    session: String,
    target: String,
}

/// A key that has a name rather than a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The key that sends.
    Enter,
    /// The key that closes.
    Escape,
    /// The key that moves the focus.
    Tab,
    /// An arrow.
    ArrowDown,
    /// An arrow.
    ArrowUp,
    /// The full stop.
    Period,
}

impl Browser {
    /// Starts a browser without a window.
    pub fn start() -> Self {
        let profile = TempDir::new().expect("a temporary directory");
        let process = PROGRAMS.iter().find_map(|program| {
            let mut command = Command::new(program);
            command
                .args(["--headless=new", "--remote-debugging-port=0", "--no-first-run", "--disable-gpu"])
                // Tests run as root in containers, where the sandbox cannot start; the pages are our own.
                .args(["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"])
                .args(["--disable-component-update", "--disable-sync", "--hide-scrollbars"])
                .arg(format!("--user-data-dir={}", profile.path().display()))
                .arg("about:blank")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().ok()
        });
        let process = process.expect("the tests of the page need Chromium; ./test.sh installs it");
        let port_file = profile.path().join("DevToolsActivePort");
        let mut address = None;
        wait_until("Chromium listens", || {
            let text = fs::read_to_string(&port_file).unwrap_or_default();
            address =
                text.split_once('\n').map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim()));
            address.is_some()
        });
        let devtools = DevTools::connect(&address.expect("it listens"));
        Self { process, devtools: Rc::new(RefCell::new(devtools)), _profile: profile }
    }

    /// Opens a page at an address. Pages of one browser share their cookies.
    pub fn open(&self, address: &str) -> Tab {
        let mut devtools = self.devtools.borrow_mut();
        let target = devtools.call(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let target = target["targetId"].as_str().expect("a target has an id").to_owned();
        let attach = json!({ "targetId": target, "flatten": true });
        let session = devtools.call(None, "Target.attachToTarget", &attach);
        let session = session["sessionId"].as_str().expect("a session has an id").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"] {
            devtools.call(Some(&session), &format!("{domain}.enable"), &json!({}));
        }
        drop(devtools);
        let tab = Tab { devtools: Rc::clone(&self.devtools), session, target };
        tab.go_to(address);
        tab
    }

    /// Allows pages of an origin these things and no others, such as `notifications`, as a person does who is asked for them.
    pub fn allow(&self, origin: &str, permissions: &[&str]) {
        let params = json!({ "origin": origin, "permissions": permissions });
        self.devtools.borrow_mut().call(None, "Browser.grantPermissions", &params);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends its own child processes; a killed one would leave them.
        let asked = self.devtools.try_borrow_mut().is_ok_and(|mut devtools| devtools.close());
        if !asked {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

impl Tab {
    fn call(&self, method: &str, params: &Value) -> Value {
        self.devtools.borrow_mut().call(Some(&self.session), method, params)
    }

    /// Goes to an address, and waits until the document is complete.
    pub fn go_to(&self, address: &str) {
        let result = self.call("Page.navigate", &json!({ "url": address }));
        assert!(result.get("errorText").is_none(), "{address}: {result}");
        let is_blank = address == "about:blank";
        self.wait_for(&format!(
            "document.readyState === 'complete' && (location.href === 'about:blank') === {is_blank}"
        ));
    }

    /// Loads the page again.
    pub fn reload(&self) {
        self.eval("window.isOld = true");
        self.call("Page.reload", &json!({}));
        self.wait_for("document.readyState === 'complete' && !window.isOld");
    }

    /// The value of an expression, awaited if it is a promise.
    #[track_caller]
    pub fn eval(&self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn try_eval(&self, expression: &str) -> Result<Value, String> {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.devtools.borrow_mut().try_call(Some(&self.session), "Runtime.evaluate", &params)?;
        match result.get("exceptionDetails") {
            Some(details) => Err(details.to_string()),
            None => Ok(result["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true. A page that is just being replaced has no value.
    #[track_caller]
    pub fn wait_for(&self, condition: &str) {
        let deadline = std::time::Instant::now() + TIMEOUT;
        while self.try_eval(&format!("Boolean({condition})")) != Ok(Value::Bool(true)) {
            if std::time::Instant::now() > deadline {
                let text = self.try_eval("document.body.innerText");
                panic!("still waiting for {condition}\non {text:?}\nerrors {:?}", self.errors());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the page shows a text.
    #[track_caller]
    pub fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// Waits until the page does not show a text.
    #[track_caller]
    pub fn wait_without_text(&self, text: &str) {
        self.wait_for(&format!("!document.body.innerText.includes({})", json!(text)));
    }

    /// The text that the page shows.
    pub fn text(&self) -> String {
        self.eval("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits for an element, and clicks in its middle as a person does: what covers it would get the click.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        let selector = json!(selector);
        // Without its style sheet, a page that is being loaded has everything elsewhere.
        self.wait_for(&format!("document.readyState === 'complete' && document.querySelector({selector})"));
        let place = self.eval(&format!(
            "(() => {{ const it = document.querySelector({selector}); it.scrollIntoView({{block: 'nearest'}}); \
             const r = it.getBoundingClientRect(); const x = r.x + r.width / 2, y = r.y + r.height / 2; \
             const at = document.elementFromPoint(x, y); return [x, y, it.contains(at) || at?.contains(it) === true]; }})()"
        ));
        assert_eq!(place[2], true, "{selector} is covered or outside of the window: {place}");
        for kind in ["mousePressed", "mouseReleased"] {
            let params =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &params);
        }
    }

    /// Enters text in the element that has the focus.
    pub fn enter(&self, text: &str) {
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Presses keys that have characters, one after another.
    pub fn press(&self, characters: &str) {
        for character in characters.chars() {
            let text = character.to_string();
            let code = u32::from(character.to_ascii_uppercase());
            let down = json!({ "type": "keyDown", "key": text, "text": text, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", &down);
            self.call("Input.dispatchKeyEvent", &json!({ "type": "keyUp", "key": text }));
        }
    }

    /// Presses a key that has a name, with these modifiers: 1 Alt, 2 Ctrl, 4 Meta, 8 Shift.
    pub fn press_key(&self, key: Key, modifiers: u8) {
        let (name, code, text) = match key {
            Key::Enter => ("Enter", 13, Some("\r")),
            Key::Escape => ("Escape", 27, None),
            Key::Tab => ("Tab", 9, None),
            Key::ArrowDown => ("ArrowDown", 40, None),
            Key::ArrowUp => ("ArrowUp", 38, None),
            Key::Period => (".", 190, None),
        };
        let mut down = json!({
            "type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": modifiers
        });
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.call("Input.dispatchKeyEvent", &down);
        let up = json!({ "type": "keyUp", "key": name, "code": name, "modifiers": modifiers });
        self.call("Input.dispatchKeyEvent", &up);
    }

    /// Drops files on the middle of an element.
    #[track_caller]
    pub fn drop_files(&self, selector: &str, files: &[&Path]) {
        let place = self.eval(&format!(
            "(() => {{ const r = document.querySelector({}).getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()",
            json!(selector)
        ));
        for kind in ["dragEnter", "dragOver", "drop"] {
            let data = json!({ "items": [], "files": files, "dragOperationsMask": 1 });
            let params = json!({ "type": kind, "x": place[0], "y": place[1], "data": data });
            self.call("Input.dispatchDragEvent", &params);
        }
    }

    /// Chooses files in a field for files.
    pub fn choose_files(&self, selector: &str, files: &[&Path]) {
        let expression = format!("document.querySelector({})", json!(selector));
        let field = self.call("Runtime.evaluate", &json!({ "expression": expression }));
        let params = json!({ "files": files, "objectId": field["result"]["objectId"] });
        self.call("DOM.setFileInputFiles", &params);
    }

    /// Pastes the clipboard into the element that has the focus.
    pub fn paste(&self) {
        let down = json!({
            "type": "keyDown", "key": "v", "code": "KeyV", "windowsVirtualKeyCode": 86, "modifiers": 2, "commands": ["paste"]
        });
        self.call("Input.dispatchKeyEvent", &down);
        self.call(
            "Input.dispatchKeyEvent",
            &json!({ "type": "keyUp", "key": "v", "code": "KeyV", "modifiers": 2 }),
        );
    }

    /// Gives the page this size, in CSS pixels; a narrow one as on a phone, with touch.
    pub fn resize(&self, width: u32, height: u32) {
        let is_phone = width < 600;
        let metrics = json!({
            "width": width, "height": height, "deviceScaleFactor": if is_phone { 2 } else { 1 }, "mobile": is_phone
        });
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
    }

    /// Sets features of the medium, such as `prefers-color-scheme` to `dark`.
    pub fn set_media(&self, features: &[(&str, &str)]) {
        let features: Vec<Value> =
            features.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
        self.call("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// Calls itself another browser from the next request on.
    pub fn set_user_agent(&self, user_agent: &str) {
        self.call("Network.setUserAgentOverride", &json!({ "userAgent": user_agent }));
    }

    /// Adds a script that the policy of the page would not allow, such as a checker.
    pub fn inject(&self, script: &str) {
        let params = json!({ "expression": script, "returnByValue": false });
        let result = self.call("Runtime.evaluate", &params);
        assert!(result.get("exceptionDetails").is_none(), "{}", result["exceptionDetails"]);
    }

    /// Writes a picture of what the page shows.
    pub fn screenshot(&self, file: &Path) {
        let picture = self.call("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = STANDARD.decode(picture["data"].as_str().unwrap_or_default()).expect("it is base64");
        fs::write(file, bytes).expect("the picture can be written");
    }

    /// The measurements of the browser, by name: `JSHeapUsedSize`, `Nodes`, `TaskDuration` and others.
    pub fn metrics(&self) -> Vec<(String, f64)> {
        let metrics = self.call("Performance.getMetrics", &json!({}));
        let metrics = metrics["metrics"].as_array().cloned().unwrap_or_default();
        metrics
            .iter()
            .filter_map(|metric| Some((metric["name"].as_str()?.to_owned(), metric["value"].as_f64()?)))
            .collect()
    }

    /// The errors of the page so far: exceptions, violations of its policy, requests that failed.
    pub fn errors(&self) -> Vec<String> {
        self.events(|method, params| match method {
            "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
            "Log.entryAdded" if params["entry"]["level"] == "error" => Some(params["entry"].to_string()),
            _ => None,
        })
    }

    /// The addresses that the page requested so far, those of WebSockets included.
    pub fn requests(&self) -> Vec<String> {
        self.events(|method, params| match method {
            "Network.requestWillBeSent" => params["request"]["url"].as_str().map(str::to_owned),
            "Network.webSocketCreated" => params["url"].as_str().map(str::to_owned),
            _ => None,
        })
    }

    fn events(&self, pick: impl Fn(&str, &Value) -> Option<String>) -> Vec<String> {
        // An answer comes after all events before it.
        let _ = self.try_eval("0");
        let devtools = self.devtools.borrow();
        let ours = devtools.events.iter().filter(|event| event["sessionId"] == *self.session);
        ours.filter_map(|event| pick(event["method"].as_str()?, &event["params"])).collect()
    }

    /// Closes the page.
    pub fn close(self) {
        self.devtools.borrow_mut().call(None, "Target.closeTarget", &json!({ "targetId": self.target }));
    }
}

/// A connection to the browser, which one call at a time uses.
struct DevTools {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    next_id: u64,
    /// The events that a test may ask for.
    events: Vec<Value>,
}

impl std::fmt::Debug for DevTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DevTools").field("next_id", &self.next_id).finish_non_exhaustive()
    }
}

/// The events that are kept.
const EVENTS: [&str; 4] =
    ["Runtime.exceptionThrown", "Log.entryAdded", "Network.requestWillBeSent", "Network.webSocketCreated"];

impl DevTools {
    fn connect(address: &str) -> Self {
        let (socket, _) = connect(address).expect("Chromium accepts connections");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(TIMEOUT)).expect("the limit is not zero");
        }
        Self { socket, next_id: 0, events: Vec::new() }
    }

    #[track_caller]
    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Value {
        self.try_call(session, method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Result<Value, String> {
        self.next_id += 1;
        let mut message = json!({ "id": self.next_id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(message.to_string())).map_err(|error| error.to_string())?;
        loop {
            let message = self.socket.read().map_err(|error| error.to_string())?;
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if message["id"] == self.next_id {
                return match message.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(message["result"].clone()),
                };
            }
            if EVENTS.iter().any(|method| message["method"] == *method) {
                self.events.push(message);
            }
        }
    }

    /// Ends the browser; `false` if it cannot be asked to.
    fn close(&mut self) -> bool {
        self.try_call(None, "Browser.close", &json!({})).is_ok()
    }
}
