//! A killed server loses nothing that it sent or accepted.

use std::time::Instant;

use parlor_client::{Activity, Error, MessageId, Prompt, Role, Turn};
use parlor_testkit::server::TestDir;
use tokio::task::JoinHandle;

use crate::client::{Client, Snapshot, agent_text, reason};
use crate::server::{connect, figures, wait_for_no_agent, with_test_agent};

/// Pseudorandom numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Everything that killed servers sent to clients.
#[derive(Default)]
struct Record {
    /// What the last client had received when its server was killed.
    snapshot: Snapshot,
    prompts: Vec<Sent>,
}

/// A prompt that was sent.
struct Sent {
    text: String,
    /// The response of the last server, if it is pending.
    answer: Option<JoinHandle<Result<Turn, Error>>>,
    /// Its message, once it was accepted.
    message: Option<MessageId>,
}

impl Record {
    fn send(&mut self, client: &Client, text: String) {
        let answer = Some(send(client, &text));
        self.prompts.push(Sent { text, answer, message: None });
    }

    /// Sends prompts without a response again, with the same idempotency key.
    fn send_again(&mut self, client: &Client) -> usize {
        let mut count = 0;
        for prompt in self.prompts.iter_mut().filter(|prompt| prompt.message.is_none()) {
            prompt.answer = Some(send(client, &prompt.text));
            count += 1;
        }
        count
    }

    /// Records what a client had received at the end.
    fn note(&mut self, client: &Client) {
        for prompt in &mut self.prompts {
            let Some(answer) = prompt.answer.take() else { continue };
            match client.wait(answer).unwrap() {
                Ok(turn) => prompt.message = Some(turn.message_id().unwrap().clone()),
                Err(Error::Disconnected) => {}
                Err(error) => panic!("{}: {error}", prompt.text),
            }
        }
        self.snapshot = client.snapshot();
    }

    /// Compares the record with what the next server sends.
    fn check(&self, now: &Snapshot) {
        for prompt in &self.prompts {
            let Some(message) = &prompt.message else { continue };
            let text = now.message(message).map(|message| &*message.text);
            assert_eq!(text, Some(&*prompt.text), "an accepted prompt is there");
        }
        let mut indices = Vec::new();
        for before in &self.snapshot.messages {
            let index =
                now.messages.iter().position(|after| after.id == before.id && after.role == before.role);
            let index = index.unwrap_or_else(|| panic!("the message {} is missing", before.id));
            let after = &now.messages[index];
            assert!(after.text.starts_with(&before.text), "{} has lost of its text", before.id);
            indices.push(index);
        }
        assert!(indices.is_sorted(), "the messages have the same order");
        for message in now.messages.iter().filter(|message| message.role == Role::User) {
            let same =
                now.messages.iter().filter(|other| other.role == Role::User && other.text == message.text);
            assert_eq!(same.count(), 1, "the prompt {:?} was accepted twice", message.text);
        }
    }
}

/// Sends a prompt with an idempotency key.
fn send(client: &Client, text: &str) -> JoinHandle<Result<Turn, Error>> {
    client.send(Prompt::from(text).key(text))
}

fn rounds(count: usize, seed: u64, options: &str) {
    let dir = with_test_agent(options);
    let started = Instant::now();
    let mut dice = Dice(seed);
    let mut server = dir.serve();
    let mut client = connect(&server);
    let session = client.new_session().unwrap();
    let mut record = Record::default();
    let (mut running_when_killed, mut sent_again) = (0, 0);
    for round in 0..count {
        let mut prompts = vec![format!("stream 100000 40 5000\nsay round {round}")];
        for extra in 0..dice.below(3) {
            // Prompts before the long turn have ended when the server is killed; those after it are queued.
            let index = if dice.below(4) == 0 { prompts.len() } else { 0 };
            prompts.insert(index, format!("say round {round}.{extra}"));
        }
        prompts.into_iter().for_each(|text| record.send(&client, text));
        // After few changes prompts are being accepted, after many the turn runs.
        let changes = if dice.below(4) == 0 { dice.below(8) } else { dice.below(500) };
        let enough = client.session().transcript().seq() + changes;
        client.until(|transcript| transcript.seq() >= enough);
        server.kill();
        client.read_rest();
        record.note(&client);
        wait_for_no_agent(&dir);

        server = dir.serve();
        client = connect(&server);
        client.join(&session);
        let now = client.snapshot();
        record.check(&now);
        assert!(now.is(&Activity::Idle), "no turn runs without a prompt");
        if record.snapshot.is(&Activity::Running) {
            running_when_killed += 1;
            // A short turn may have ended and been stored before the server was killed, but not sent.
            let last = now.messages.iter().rfind(|message| message.role == Role::User);
            let is_long = last.is_some_and(|message| message.text.starts_with("stream"));
            let reason = reason(&now.state.unwrap());
            assert!(reason == "error" || !is_long && reason == "end_turn", "the turn ended with {reason}");
        }
        sent_again += record.send_again(&client);
    }
    let messages = record.snapshot.messages.len();
    let bytes: usize = record.snapshot.messages.iter().map(|message| message.text.len()).sum();
    figures(&format!(
        "{count} rounds in {:.1?}, {running_when_killed} of them in a turn that was seen to run; \
         {} prompts, {sent_again} times one was sent again, {messages} messages, {bytes} bytes",
        started.elapsed(),
        record.prompts.len(),
    ));
    assert!(running_when_killed * 2 > count, "most rounds are killed in a turn");
}

#[test]
fn a_server_that_is_killed_fifty_times_loses_nothing() {
    rounds(50, 0x5eed, "");
}

#[test]
fn a_killed_server_with_an_agent_of_version_1_loses_nothing() {
    rounds(15, 0xfeed, "--version 1");
}

/// The output of `parlor show` for the only session, without white space.
fn shown_by_command(dir: &TestDir) -> String {
    without_space(&dir.run(&["show", "latest", "--all"]).success().stdout)
}

fn without_space(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn a_command_reads_everything_that_clients_received_from_a_killed_server() {
    let dir = with_test_agent("");
    let mut server = dir.serve();
    let mut client = connect(&server);
    client.new_session().unwrap();
    client.send("stream 100000 40 2000".into());
    let mut length = 0;
    let mut is_all_there = || {
        client.until(|transcript| agent_text(transcript).len() > length + 2000);
        let agent_text = client.agent_text();
        length = agent_text.len();
        agent_text
    };
    for _ in 0..10 {
        let agent_text = without_space(&is_all_there());
        assert!(shown_by_command(&dir).contains(&agent_text), "while the server runs");
    }
    is_all_there();
    server.kill();
    client.read_rest();
    let agent_text = without_space(&client.agent_text());
    assert!(shown_by_command(&dir).contains(&agent_text), "after it was killed");
    // The next server continues from there.
    let mut server = dir.serve();
    assert!(shown_by_command(&dir).contains(&agent_text), "with the next server");
    assert!(server.stop().success());
    assert!(!dir.data().join("parlor.db.journal").exists());
    wait_for_no_agent(&dir);
}
