//! The agent of the pictures, which plays the same stories each time.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use parlor_agent::{
    Agent, Info, Json, Object, PermissionOption, PermissionOptionKind, PlanEntry, Server, Setting,
    SettingCategory, StopReason, ToolKind, Turn, TurnError,
};

use crate::failure::Failure;

/// Plays a story for each prompt that it knows.
struct Storyteller;

/// Runs the agent on standard input and output. It stores its sessions in this file.
pub(super) fn run(file: &Path) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::failed)?;
    let server = Server::builder(Storyteller).persist(file);
    let served = runtime.block_on(async { server.start().await?.stdio().await });
    served.map(|()| ExitCode::SUCCESS).map_err(Failure::failed)
}

/// The prompt of the long story.
pub(super) const ROTATION: &str = "Lines at the end of a log are lost when it rotates (#214). Find out why, fix it, and add a test that fails without the fix.";

/// The prompt of its second turn, which ends with a request for permission.
pub(super) const WINDOWS: &str = "Good. It has to work on Windows, too: files have no inode there.";

/// The prompt of a story that asks for a decision with a form.
pub(super) const FORM: &str = "The retry test in `uploads` is flaky.";

/// The prompt of a story that asks to run a command.
pub(super) const RELEASE: &str = "Tag 0.9.3 and push the tag.";

/// The prompt of a story that fails.
pub(super) const FAILURE: &str = "Move CI to the arm64 runners.";

/// The title of that story.
pub(super) const FAILED_TITLE: &str = "Move CI to the arm64 runners";

/// The prompt of a fork that fails.
pub(super) const KQUEUE: &str = "Same, with kqueue on macOS";

/// The prompt that waits for the end of a turn.
pub(super) const QUEUED: &str = "Then add the fix to CHANGELOG.md under 0.9.3";

/// The prompt of a turn that runs until it is cancelled.
pub(super) const LONG: &str = "Split the parser into a crate of its own.";

impl Agent for Storyteller {
    fn info(&self) -> Info {
        let mode = Setting::new("mode", "Mode").category(SettingCategory::Mode);
        let model = Setting::new("model", "Model").category(SettingCategory::Model);
        Info::new("storyteller", "1.0.0")
            .setting(mode.value("ask", "Ask first").value("edit", "Edit freely"))
            .setting(model.value("large", "Large").value("small", "Small"))
            .command("test", "Run the tests that a change affects", None)
    }

    async fn prompt(&self, turn: Turn) -> Result<StopReason, TurnError> {
        // A fork with another agent has the earlier conversation before its prompt.
        let text = turn.prompt_text();
        match text.trim().lines().last().unwrap_or_default() {
            ROTATION => rotation(&turn).await?,
            WINDOWS => windows(&turn).await?,
            FORM => form(&turn).await?,
            RELEASE => release(&turn).await?,
            FAILURE => {
                turn.set_title(FAILED_TITLE).await;
                turn.send_text(
                    "The runners are listed in `.github/workflows/ci.yml`; I change the matrix first.",
                )
                .await;
                usage(&turn, 38_000, "0.94").await?;
                return Err(TurnError::new("the model is overloaded, try again in 30 seconds"));
            }
            KQUEUE => {
                turn.set_title(KQUEUE).await;
                usage(&turn, 9_000, "0.07").await?;
                return Err(TurnError::new("no macOS runner is available"));
            }
            LONG => {
                turn.set_title("Split the parser crate").await;
                turn.send_text("The lexer has no dependencies, so it moves first.").await;
                usage(&turn, 88_000, "2.40").await?;
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }
            title => {
                turn.set_title(title).await;
                turn.send_text("Done.").await;
                turn.add_tokens(8_400, 1_100);
                usage(&turn, 12_000, cost_of(title)).await?;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

/// The cost of a short story.
fn cost_of(title: &str) -> &'static str {
    match title {
        "Review of the storage trait" => "1.10",
        "Benchmark memchr against std" => "0.71",
        "Use inotify instead of polling" => "0.61",
        "Why is the lease renewed twice?" => "0.29",
        "Keep polling, drain on rename" => "0.22",
        "Raise the MSRV to 1.89" => "0.12",
        _ => "0.08",
    }
}

const OLD_POLL: &str = "    fn poll(&mut self) -> io::Result<usize> {\n        if self.rotated()? {\n            self.file = File::open(&self.path)?;\n            self.offset = 0;\n        }\n        self.read_lines()\n    }\n";
const NEW_POLL: &str = "    fn poll(&mut self) -> io::Result<usize> {\n        if self.rotated()? {\n            // What was written before the rename is still in the old file.\n            let drained = self.read_lines()?;\n            self.file = File::open(&self.path)?;\n            self.offset = 0;\n            return Ok(drained + self.read_lines()?);\n        }\n        self.read_lines()\n    }\n";
const NEW_TEST: &str = "#[test]\nfn lines_written_before_a_rotation_are_read() {\n    let log = Log::with(\"one\\n\");\n    let mut follower = Follower::open(log.path());\n    log.append(\"two\\n\");\n    log.rotate();\n    assert_eq!(follower.poll_lines(), [\"one\", \"two\"]);\n}\n";

const FAILED_RUN: &[u8] = b"   Compiling tailfin v0.9.2\r\n\x1b[1mrunning 1 test\x1b[0m\r\ntest lines_written_before_a_rotation_are_read ... \x1b[31mFAILED\x1b[0m\r\n\r\nassertion `left == right` failed\r\n  left: [\"one\"]\r\n right: [\"one\", \"two\"]\r\n";
const PASSED_RUN: &[u8] = b"   Compiling tailfin v0.9.2\r\n\x1b[1mrunning 38 tests\x1b[0m\r\n......................................\r\ntest result: \x1b[32mok\x1b[0m. 38 passed; 0 failed; finished in 1.92s\r\n";

/// A bug is found, reproduced and fixed.
async fn rotation(turn: &Turn) -> Result<(), TurnError> {
    turn.set_title("Lines lost when the log rotates").await;
    turn.set_plan([
        PlanEntry::in_progress("Find out how a rotation is noticed"),
        PlanEntry::pending("Reproduce the loss in a test"),
        PlanEntry::pending("Read the old file to its end"),
        PlanEntry::pending("Run all tests"),
    ])
    .await;
    turn.send_thought("`poll` compares inodes. When they differ it opens the new file at once, so whatever was appended to the old one after the last read is never read.").await;
    let call = turn
        .tool_call("Read src/follow.rs")
        .kind(ToolKind::Read)
        .location("src/follow.rs", Some(41))
        .start()
        .await;
    call.complete().await;
    let call = turn.tool_call("Search for `rotated(`").kind(ToolKind::Search).start().await;
    call.send_content("src/follow.rs:41\nsrc/follow.rs:88\ntests/rotate.rs:12").await;
    call.complete().await;
    turn.send_text("The loss is in `Follower::poll`: it compares inodes, and when they differ it opens the new file **before** the old one is read to its end. A test first:").await;
    let call = turn
        .tool_call("Edit tests/rotate.rs")
        .kind(ToolKind::Edit)
        .location("tests/rotate.rs", None)
        .start()
        .await;
    call.send_diff("tests/rotate.rs", None, NEW_TEST).await;
    call.complete().await;
    command(turn, "cargo test --test rotate", FAILED_RUN, 101).await;
    turn.send_text("It fails as expected. Now the fix:").await;
    let call = turn
        .tool_call("Edit src/follow.rs")
        .kind(ToolKind::Edit)
        .location("src/follow.rs", Some(41))
        .start()
        .await;
    call.send_diff("src/follow.rs", Some(OLD_POLL), NEW_POLL).await;
    call.complete().await;
    command(turn, "cargo test", PASSED_RUN, 0).await;
    turn.set_plan([
        PlanEntry::completed("Find out how a rotation is noticed"),
        PlanEntry::completed("Reproduce the loss in a test"),
        PlanEntry::completed("Read the old file to its end"),
        PlanEntry::completed("Run all tests"),
    ])
    .await;
    turn.send_text("Fixed: the old file is read to its end before the new one is opened.\n\n| | before | after |\n|---|---|---|\n| lines lost per rotation | up to 64 KiB | none |\n| system calls per poll | 2 | 2 |\n\nThe old handle stays open for one more `read`, which returns at once:\n\n```rust\nlet drained = self.read_lines()?;\nself.file = File::open(&self.path)?;\n```\n").await;
    turn.add_tokens(262_000, 30_000);
    usage(turn, 61_000, "1.52").await
}

async fn command(turn: &Turn, line: &str, output: &[u8], code: i32) {
    let input = Object::new().with("command", line).to_json();
    let call = turn.tool_call(format!("Run `{line}`")).kind(ToolKind::Execute).raw_input(input).start().await;
    let terminal = turn.create_terminal(line).await;
    call.send_terminal(&terminal).await;
    terminal.send_output(output).await;
    terminal.exit(code).await;
    if code == 0 { call.complete().await } else { call.fail().await }
}

async fn usage(turn: &Turn, used: u64, cost: &str) -> Result<(), TurnError> {
    let cost = Object::new().with("amount", Json::parse(cost)?).with("currency", "USD");
    let update =
        Object::new().with("sessionUpdate", "usage_update").with("used", used).with("size", 200_000_u64);
    turn.send_update(&update.with("cost", cost.to_json())).await;
    Ok(())
}

/// A change for another system, which ends with a request to run a command.
async fn windows(turn: &Turn) -> Result<(), TurnError> {
    turn.set_plan([
        PlanEntry::completed("Identify files on Windows"),
        PlanEntry::in_progress("Check the Windows build"),
        PlanEntry::pending("Update the changelog"),
    ])
    .await;
    turn.send_text("Windows has a *file index* for that, together with the serial number of the volume. `windows-sys` offers it without a wrapper.").await;
    usage(turn, 124_000, "1.84").await?;
    let line = "cargo add windows-sys --target 'cfg(windows)' --features Win32_Storage_FileSystem && cargo check --target x86_64-pc-windows-gnu";
    let files = [("Cargo.toml", OLD_MANIFEST, NEW_MANIFEST), ("src/identity.rs", OLD_IDENTITY, NEW_IDENTITY)];
    permission(turn, line, "Always allow cargo add and check", &files).await
}

const OLD_MANIFEST: &str =
    "[package]\nname = \"tailfin\"\n\n[dependencies]\nmemchr = \"2\"\nnotify = \"8\"\n";
const NEW_MANIFEST: &str = "[package]\nname = \"tailfin\"\n\n[dependencies]\nmemchr = \"2\"\nnotify = \"8\"\n\n[target.\"cfg(windows)\".dependencies]\nwindows-sys = { version = \"0.61\", features = [\"Win32_Storage_FileSystem\"] }\n";
const OLD_IDENTITY: &str = "/// Names a file.\npub struct Identity(u64, u64);\n\nimpl Identity {\n    pub fn of(path: &Path) -> io::Result<Self> {\n        let meta = path.metadata()?;\n        Ok(Self(meta.dev(), meta.ino()))\n    }\n}\n";
const NEW_IDENTITY: &str = "/// Names a file.\npub struct Identity(u64, u64);\n\nimpl Identity {\n    #[cfg(unix)]\n    pub fn of(path: &Path) -> io::Result<Self> {\n        let meta = path.metadata()?;\n        Ok(Self(meta.dev(), meta.ino()))\n    }\n\n    #[cfg(windows)]\n    pub fn of(path: &Path) -> io::Result<Self> {\n        let info = file_information(&File::open(path)?)?;\n        Ok(Self(info.volume.into(), info.file_index()))\n    }\n}\n";

/// Asks for permission to run a command and to change files, each with its texts before and after.
async fn permission(
    turn: &Turn,
    line: &str,
    always: &str,
    files: &[(&str, &str, &str)],
) -> Result<(), TurnError> {
    let input = Object::new().with("command", line).to_json();
    let call = turn.tool_call(format!("Run `{line}`")).kind(ToolKind::Execute).raw_input(input).start().await;
    for (path, old, new) in files {
        call.send_diff(*path, Some(old), new).await;
    }
    let options = [
        PermissionOption::allow_once(),
        PermissionOption::new("always", always, PermissionOptionKind::AllowAlways),
        PermissionOption::reject_once(),
    ];
    if call.request_permission(options).await?.is_allowed() {
        call.complete().await;
    } else {
        call.fail().await;
    }
    Ok(())
}

async fn release(turn: &Turn) -> Result<(), TurnError> {
    turn.set_title("Release 0.9.3: changelog and tag").await;
    usage(turn, 18_000, "0.21").await?;
    permission(
        turn,
        "git tag --sign v0.9.3 --message \"tailfin 0.9.3\" && git push origin v0.9.3",
        "Always allow git push",
        &[],
    )
    .await
}

async fn form(turn: &Turn) -> Result<(), TurnError> {
    turn.set_title("Flaky retry test in uploads").await;
    let schema = r#"{"type":"object","required":["fix"],"properties":{
        "fix":{"type":"string","title":"How should it be fixed?","oneOf":[{"const":"clock","title":"Inject a clock (changes the signature of Uploader::new)"},{"const":"delay","title":"Shorten the delay in tests (keeps the signature)"}],"default":"clock"},
        "note":{"type":"string","title":"Anything else?"}}}"#;
    let schema = Json::parse(schema)?;
    turn.request_form("The test waits 30 s for the third retry.", &schema).await?;
    Ok(())
}
