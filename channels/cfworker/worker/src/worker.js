/**
 * A Cloudflare Email Worker that hands each mail to an Admitone server, byte for byte.
 *
 * Cloudflare acknowledges a mail to the sender's server after this handler. So there are three
 * ways out, and nothing is caught or done later (ctx.waitUntil) that could turn one into another:
 *
 * - It returns: the server has stored the mail.
 * - It throws: a temporary failure; the sender's server keeps the mail and tries again for days
 *   (RFC 5321 4.5.4.1). Everything that may be mended is one, a wrong key or address too.
 * - It rejects: the sender gets the mail back. Only where no retry can do better.
 *
 * The mail is not parsed, since whoever sends mail would decide how long that takes, and since
 * the server compares its very bytes with those that come by other ways.
 *
 * @see https://developers.cloudflare.com/email-routing/email-workers/runtime-api/
 */

import { Buffer } from "node:buffer";
import { createHash, createHmac } from "node:crypto";

/** Bytes that the server takes. Cloudflare takes 25 MiB of mail. */
const MAX_SIZE = 26 * 1024 * 1024;

/** A mail of full size must get through. The sender's server waits for 10 min (RFC 5321 4.5.3.2.6). */
const TIMEOUT_SECONDS = 60;

export default {
	/**
	 * @param {ForwardableEmailMessage} message
	 * @param {{RELAY_URL: string, SIGNING_KEY: string, FORWARD_TO?: string, TIMEOUT_SECONDS?: string}} env
	 */
	async email(message, env) {
		if (message.rawSize > MAX_SIZE) {
			message.setReject("Message too large");
			return;
		}
		const mail = new Uint8Array(await new Response(message.raw).arrayBuffer());
		const answer = await fetch(relayURL(env), {
			method: "POST",
			headers: sign(message, mail, signingKey(env)),
			body: mail,
			// The server never redirects: whoever does is something else, and might answer 200.
			redirect: "manual",
			signal: AbortSignal.timeout(1000 * (Number(env.TIMEOUT_SECONDS) || TIMEOUT_SECONDS)),
		});
		await answer.body?.cancel();

		if (answer.status === 413) {
			message.setReject("Message too large");
			return;
		}
		// Without a verdict it is a 404 of something before the server, or of a server that has no
		// such installation: then RELAY_URL is wrong, and not the recipient.
		if (answer.status === 404 && answer.headers.get("Admitone-Verdict") === "refused") {
			message.setReject("Unknown recipient");
			return;
		}
		if (!answer.ok) {
			throw new Error(`the server answered ${answer.status}`);
		}
		// After the server has it: if this fails, the mail comes again, which the server knows then.
		if (env.FORWARD_TO && message.canBeForwarded !== false) {
			await message.forward(env.FORWARD_TO);
		}
	},
};

/**
 * Returns the headers of the request. The signature is that of Standard Webhooks, which covers
 * the id, the time and the mail; the id is a hash over the envelope, so that it is covered too.
 */
function sign(message, mail, key) {
	const from = message.from === "<>" ? "" : message.from.toWellFormed();
	const to = message.to.toWellFormed();
	const id = "msg_" + createHash("sha256").update(`${from}\0${to}\0`).update(mail).digest("hex");
	const timestamp = Math.floor(Date.now() / 1000).toString();
	const signature = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(mail).digest("base64");
	return {
		"Content-Type": "message/rfc822",
		"Admitone-Mail-From": encodeURIComponent(from),
		"Admitone-Rcpt-To": encodeURIComponent(to),
		"webhook-id": id,
		"webhook-timestamp": timestamp,
		"webhook-signature": `v1,${signature}`,
	};
}

function relayURL(env) {
	if (!URL.canParse(env.RELAY_URL)) {
		throw new Error("RELAY_URL is missing or no URL");
	}
	return env.RELAY_URL;
}

function signingKey(env) {
	const [, encoded] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(env.SIGNING_KEY?.trim()) ?? [];
	if (!encoded) {
		throw new Error("SIGNING_KEY is missing or not whsec_ and Base64");
	}
	return Buffer.from(encoded, "base64");
}
