//! Moments at which everything is delivered, read and answered, so that all sides can be compared.

use parlor_engine::{Event, Timer};

use super::Invariant;
use super::replica::From;
use super::shell::{Message, Shell};
use super::world::World;

/// After how many rounds a world that does not come to rest has failed.
const MAX_ROUNDS: usize = 2000;

/// How many cancel timeouts may follow each other: what waited for one may be cancelled as well.
const MAX_TIMEOUTS: usize = 20;

impl World {
    /// Brings the world to rest, and checks what has to hold then.
    pub(super) fn settle(&mut self) {
        self.note(|| "settle".to_owned());
        self.is_settling = true;
        if self.plan.config.cancel_timeout.is_some() && self.random.percent(30) {
            self.let_cancelled_turns_time_out();
        }
        self.people.iter_mut().for_each(|person| person.is_stalled = false);
        let mut rounds = 0;
        while self.failure().is_none() && (self.deliver_all() || self.finish_all() || self.bring_drivers()) {
            rounds += 1;
            if rounds > MAX_ROUNDS {
                self.fail(Invariant::Rest, "the world does not come to rest".to_owned());
            }
        }
        self.is_settling = false;
        if self.failure().is_some() {
            return;
        }
        self.check_all_answered();
        self.check_agents_answered();
        self.check_replicas();
        self.check_prompts();
        self.check_subagents();
    }

    /// Lets time pass in which no agent does anything: what was cancelled is over then.
    fn let_cancelled_turns_time_out(&mut self) {
        for _ in 0..MAX_TIMEOUTS {
            while self.failure().is_none() && self.deliver_all() {}
            let cancels = self.timers.iter().filter(|timer| matches!(timer.timer, Timer::Cancel(..)));
            let Some(last) = cancels.map(|timer| timer.at).max() else { break };
            self.now = self.now.max(last);
            while let Some(place) = self.timers.iter().position(|timer| timer.at <= last) {
                self.fire_timer(place);
            }
        }
        let is_overdue = |shell: &Shell| {
            let session = shell.machine.session();
            // A prompt that was withdrawn may wait for a turn that is wanted.
            let is_excused = session.cancelled().has_no_turn() && session.is_wanted_turn_running();
            // A subagent has no timeout: its process is that of its owner.
            let has_timeout = shell.machine.agent().is_some() && !shell.machine.is_owned();
            has_timeout && session.is_cancelling() && !is_excused
        };
        let overdue = self.shells.iter().find(|(_, shell)| is_overdue(shell)).map(|(key, _)| key.clone());
        if let Some(key) = overdue {
            self.fail(Invariant::Rest, format!("what was cancelled in {key} is not over after the timeout"));
        }
    }

    /// Delivers what is on its way; whether there was something.
    fn deliver_all(&mut self) -> bool {
        let mut has_done = self.disk.is_busy();
        while self.disk.waiting() > 0 {
            self.commit();
        }
        self.sync();
        for key in self.shells.keys().cloned().collect::<Vec<_>>() {
            if self.shells.get(&key).is_some_and(Shell::is_ready) {
                has_done = true;
                self.run_session(&key, usize::MAX);
                // A client with a short queue would be cut off again and again if several sessions ask it at once.
                self.read_all();
            }
        }
        while !self.jobs.is_empty() {
            has_done = true;
            self.run_job(0);
        }
        self.read_all() || has_done
    }

    /// Has all clients read what they were sent; whether there was something.
    fn read_all(&mut self) -> bool {
        let mut has_read = false;
        for client in self.connections.keys().copied().collect::<Vec<_>>() {
            let Some(connection) = self.connections.get(&client) else { continue };
            has_read |= !connection.is_drained() || !connection.drains.is_empty();
            self.read(client, usize::MAX);
        }
        has_read
    }

    /// Has all peers answer what they were asked, and all time pass that somebody waits for; whether there was something.
    fn finish_all(&mut self) -> bool {
        self.check_open_requests();
        let mut has_done = false;
        for person in 0..self.people.len() {
            let Some(client) = self.people[person].connection else { continue };
            for id in self.people[person].requests.keys().copied().collect::<Vec<_>>() {
                has_done = true;
                self.answer_request(client, person, id);
            }
        }
        if has_done {
            return true;
        }
        for process in 0..self.processes.len() {
            has_done |= self.finish_agent(process);
        }
        if has_done || self.timers.is_empty() {
            return has_done;
        }
        self.timers.sort_by_key(|timer| timer.at);
        self.now = self.now.max(self.timers[0].at);
        self.fire_timer(0);
        true
    }

    /// A timer runs out.
    pub(super) fn fire_timer(&mut self, place: usize) {
        let timer = self.timers.remove(place);
        let message = Message::Event(Event::Timer(timer.timer));
        let _ = self.send_to(&timer.session, timer.incarnation, message);
    }

    /// Attaches a driver to a session in which an agent waits for one; whether that was necessary.
    fn bring_drivers(&mut self) -> bool {
        let is_open = |process: &super::agent::Process| {
            process.is_alive && process.sessions.values().any(|session| !session.open_requests().is_empty())
        };
        if !self.processes.iter().any(is_open) {
            return false;
        }
        let client = match self.people[0].connection {
            Some(client) => client,
            None => self.connect(0),
        };
        for key in self.shells.keys().cloned().collect::<Vec<_>>() {
            let Some(shell) = self.shells.get(&key) else { continue };
            let has_driver = shell.machine.session().drivers().next().is_some();
            if shell.machine.queues().peer_requests > 0 && !has_driver {
                self.attach_from(client, 0, &key, From::Now);
                return true;
            }
        }
        false
    }
}
